"""One process of a training, which tests start, signal and kill.

process_member.py PORT PROCESSES FOLDER whole|signal PROCESS_ID
"""

import os
import sys
import time
import warnings

import jax
import numpy as np

from diracflow.training.multiprocess import ProcessLost, join


def main(port, processes, folder, task, number):
    jax.config.update("jax_enable_x64", True)
    join(f"127.0.0.1:{port}", int(processes), int(number), heartbeat=20)

    # After joining, because this import may run computations.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from kept_run import learned

    if task == "signal":
        _slow_down()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            steps = 3 if task == "whole" else 40
            density = learned(max_steps=steps, checkpoint=os.path.join(folder, "run"))
    except ProcessLost as lost:
        print(lost, file=sys.stderr, flush=True)
        os._exit(4)
    np.save(os.path.join(folder, f"path-{number}.npy"), density.trajectory.thetas)


def _slow_down():
    """Write a checkpoint after every step, print the step, and make it slow."""
    from diracflow.training import checkpointer
    from diracflow.training.loop import TimeLoop

    checkpointer._SPACING = 0
    record = TimeLoop.record

    def slow_record(self, *arguments, **figures):
        record(self, *arguments, **figures)
        print("step", len(self.history), file=sys.stderr, flush=True)
        time.sleep(0.5)

    TimeLoop.record = slow_record


if __name__ == "__main__":
    main(*sys.argv[1:])
