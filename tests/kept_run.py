"""A small run that tests keep, kill and resume; as a script, one that is killed while writing."""

import os
import signal
import sys

import jax
import jax.numpy as jnp
import jax.random as jr

import diracflow as df

SDE = df.SDE(lambda t, x: x - x**3, lambda t, x: 0.7 * jnp.eye(1), 1)
STARTS = df.Normal(0.0, 1.0)
SMALL = {"layers": 2, "hidden": 2, "bumps": 2, "samples": 64, "tolerance": 2e-2, "certify": False}
# The least to compile, and few of the hundred steps to the horizon.
SMALL |= {"source": "euler", "max_steps": 12}


def learned(**changes):
    """A training of some seconds, most of which is compilation."""
    return df.learn(SDE, STARTS, 0.5, **{"key": jr.key(0), "preset": "quick", **SMALL, **changes})


def switch_early(setattr):
    """Let implicit steps begin after some explicit ones."""
    loop = "diracflow.training.explicit_loop."
    for name in ("_FEW", "_AFFORDABLE", "_EARLY"):
        setattr(loop + name, 0)
    setattr(loop + "_PATIENCE", 3)


def _set(name, value):
    module, _, attribute = name.rpartition(".")
    setattr(sys.modules[module], attribute, value)


def _killed_while_writing(step):
    replace = os.replace

    def struck(source, target):
        if f"{step:06d}" in str(target):
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    os.replace = struck


if __name__ == "__main__":
    import diracflow.training.checkpointer
    import diracflow.training.explicit_loop

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    switch_early(_set)
    diracflow.training.checkpointer._SPACING = 0
    _killed_while_writing(int(sys.argv[2]))
    learned(checkpoint=sys.argv[1])
