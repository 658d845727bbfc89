"""Does the diagnosis of a stalled training name the cause that was put there?

Trainings are spoiled on purpose, one way at a time: too few points, a flow that is too small, a
source that runs away, a fast component that forces short steps. Each is stopped after some steps,
and the cause that its records point to is printed beside the one that was put there, with what the
diagnosis looks at: residuals on fresh points and on the velocity's own, and by how many nats the
source differs from the density. One JSON line for each way and seed.

Run: python benchmarks/bench_diagnosis.py --steps 5000 --limit 75
"""

import argparse
import json
import warnings
from collections.abc import Callable
from statistics import median

import jax
import jax.numpy as jnp
import jax.random as jr

import diracflow as df
from diracflow.training.state import _RECENT, diagnosis


def well(t, x):
    return x - x**3


def steep(t, x):
    return -4 * x * (x**2 - 1)


def double_well(t, x):
    return -jnp.stack([4 * x[0] * (x[0] ** 2 - 1) + 0.3 * x[1], x[1] + 0.3 * x[0]])


def fast_and_slow(t, x):
    """One component follows a curve of the other, a hundred times as fast."""
    return jnp.stack([-100 * (x[0] - jnp.sin(2 * x[1])), x[1] - x[1] ** 3])


def sde(drift: Callable, noise: float, dim: int) -> df.SDE:
    return df.SDE(drift, lambda t, x: noise * jnp.eye(dim), dim)


# The equation, the horizon, how it is spoiled, and what should be said.
WAYS = {
    "few points, well": (sde(well, 0.7, 1), 5.0, {"samples": 96}, "TOO_FEW_SAMPLES"),
    "few points, steep": (sde(steep, 1.0, 1), 3.0, {"samples": 96}, "TOO_FEW_SAMPLES"),
    "few points, plane": (sde(double_well, 1.0, 2), 3.0, {"samples": 384}, "TOO_FEW_SAMPLES"),
    "small flow, steep": (sde(steep, 1.0, 1), 3.0, {"layers": 2, "hidden": 1}, "FLOW_TOO_SMALL"),
    "small flow, plane": (
        *(sde(double_well, 1.0, 2), 3.0),
        *({"layers": 2, "hidden": 1}, "FLOW_TOO_SMALL"),
    ),
    "Euler's source, well": (sde(well, 0.7, 1), 5.0, {"source": "euler"}, "SOURCE_TOO_FAR"),
    "Euler's source, plane": (
        *(sde(double_well, 1.0, 2), 3.0),
        *({"source": "euler"}, "SOURCE_TOO_FAR"),
    ),
    "fast and slow": (sde(fast_and_slow, 0.5, 2), 3.0, {}, "STIFF"),
}


def bench(way: str, seed: int, steps: int, limit: float) -> dict:
    equation, horizon, spoiled, expected = WAYS[way]
    options = {"preset": "quick", "max_steps": steps, "max_seconds": limit, "certify": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            density = df.learn(
                equation, df.Normal(0.0, 1.0), horizon, key=jr.key(seed), **options | spoiled
            )
        except df.TrainingFailed as failure:
            density = failure.density
    recent = density.provenance.history[-_RECENT:]
    seen = {
        name: float(f"{median(getattr(record, name) for record in recent):.2g}")
        for name in ("fresh_residual", "residual", "source_gap", "length")
        if recent
    }
    return {
        "way": way,
        "seed": seed,
        "expected": expected,
        "named": diagnosis(density.provenance.history).name,
        "status": density.status.name,
        "reached": round(density.horizon / horizon, 4),
        "steps": len(density.provenance.history),
        **seen,
    }


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--limit", type=float, default=75.0, help="seconds for each training")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for way in options.ways or WAYS:
        if way not in WAYS:
            parser.error(f"no way {way!r}; there are {', '.join(WAYS)}")
        for seed in options.seeds:
            print(json.dumps(bench(way, seed, options.steps, options.limit)), flush=True)


if __name__ == "__main__":
    _main()
