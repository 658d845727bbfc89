"""What do checkpoints cost, and do runs that are killed end in the same bits?

`write` writes paths of some sizes, without a training: best of five. `cost` learns once, with the
time that goes into checkpoints taken apart. `kills` starts a process that learns, kills it
(SIGKILL) at a random time after the first step it makes, starts it again, and so on for some kills;
the last process finishes, and its path is compared with that of a run without interruption.

Run: python benchmarks/bench_checkpoint.py write, or cost, or kills 10
"""

import hashlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.sde.fingerprint import Fingerprint
from diracflow.training.checkpoint_file import Contents, Folder, opened
from diracflow.training.progress import Progress
from diracflow.training.run_identity import Identity
from diracflow.training.state import Record, State

# Steps and parameters: Beneš with both presets, a steep double well, and the largest there may be.
SIZES = ((50, 816), (150, 952), (650, 396), (2000, 1746))


def learned(**options) -> df.TransitionDensity:
    model = df.models.benes()
    small = {"preset": "quick", "hidden": 4, "tolerance": 1e-2, "certify": False}
    return df.learn(model.sde, model.starts, 1.0, key=jr.key(0), **small, **options)


def digest(density: df.TransitionDensity) -> str:
    path, found = density.trajectory, hashlib.sha256()
    for table in (path.clocks, path.thetas, path.first, path.last):
        found.update(table.tobytes())
    return found.hexdigest()


class Telling(Progress):
    """Says that there has been a step."""

    def _show(self, record):
        print("step", self.steps, flush=True)


def live(folder: str) -> None:
    """One life of a run: in a process of its own."""
    density = learned(checkpoint=folder, progress=Telling)
    print("ended", digest(density), flush=True)


def write(steps: int, parameters: int) -> dict:
    rng, record = np.random.default_rng(0), Record(*[0.1] * 11, rejected=1, seconds=0.5)
    rows = tuple(rng.normal(size=(steps + 1, parameters)))
    clocks = tuple(np.linspace(0, 1, steps + 1).tolist())
    state = State(clocks, rows, rows[1:], rows[1:], (record,) * steps, 1.0, {"length": 0.1})
    probes = Fingerprint(np.zeros(64), *[np.zeros((64, 1))] * 2, np.zeros((64, 1, 1)))
    contents = Contents(Identity({}, probes), state, {})
    wall, cpu = [], []
    with tempfile.TemporaryDirectory() as path, opened(path) as folder:
        for _ in range(5):
            began, worked = time.perf_counter(), time.process_time()
            folder.write(contents)
            wall.append(time.perf_counter() - began)
            cpu.append(time.process_time() - worked)
        size = max(file.stat().st_size for file in pathlib.Path(path).iterdir())
    return {
        "steps": steps,
        "parameters": parameters,
        "mb": round(size / 1e6, 2),
        "wall_ms": round(1e3 * min(wall), 1),
        "cpu_ms": round(1e3 * min(cpu), 1),
    }


def cost() -> dict:
    plain, spent = Folder.write, []

    def timed(self, contents):
        began = time.perf_counter()
        plain(self, contents)
        spent.append(time.perf_counter() - began)

    Folder.write = timed
    learned(max_steps=2)  # compiles
    with tempfile.TemporaryDirectory() as folder:
        density = learned(checkpoint=folder)
        sizes = [path.stat().st_size for path in pathlib.Path(folder).iterdir()]
    return {
        "steps": len(density.provenance.history),
        "parameters": density.trajectory.thetas.shape[1],
        "training_s": round(density.provenance.seconds, 2),
        "checkpoints": len(spent),
        "writing_s": round(sum(spent), 3),
        "share": round(sum(spent) / density.provenance.seconds, 4),
        "largest_mb": round(max(sizes) / 1e6, 2),
    }


def kills(count: int) -> dict:
    rng, killed_at = random.Random(0), []
    with tempfile.TemporaryDirectory() as folder:
        ended = None
        while ended is None:
            command = [sys.executable, __file__, "live", folder]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            first = child.stdout.readline().split()
            if first[0] == "step" and len(killed_at) < count:
                time.sleep(rng.uniform(0, 1.0))
                child.send_signal(signal.SIGKILL)
            lines = [first, *(line.split() for line in child.communicate()[0].splitlines())]
            if child.returncode == -signal.SIGKILL:
                killed_at.append(max(int(line[1]) for line in lines if line[0] == "step"))
            else:
                ended = lines[-1][1]
    whole = learned()
    return {
        "kills": len(killed_at),
        "after_steps": killed_at,
        "steps": len(whole.provenance.history),
        "same_bits": ended == digest(whole),
    }


if __name__ == "__main__":
    question, *arguments = sys.argv[1:]
    if question == "live":
        live(*arguments)
    elif question == "write":
        for size in SIZES:
            print(json.dumps(write(*size)), flush=True)
    else:
        print(json.dumps(cost() if question == "cost" else kills(int(arguments[0]))), flush=True)
