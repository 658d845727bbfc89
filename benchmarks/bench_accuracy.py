"""How accurate is a preset on problems with an exact density, and what does it cost?

One JSON line for each CASE:PRESET and seed, with the mean relative squared L2 error over fresh
starts at eight times, the largest of these means, the source's own error, the residual on fresh
points, and the wall time, compilation included. Cases are built-in models by name, or ou1, ou2, …:
the Ornstein-Uhlenbeck process in that dimension with a random stable matrix and full noise.

Run: python benchmarks/bench_accuracy.py benes:accurate sheared:accurate ou6:accurate --seeds 0 1 2
"""

import argparse
import dataclasses
import json
import time
from statistics import median

import jax
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.evaluate.errors import study

# Shares of the horizon.
TIMES = np.array([1e-4, 1e-3, 3e-3, 1e-2, 0.1, 0.3, 0.6, 1.0])


def case(name: str) -> df.models.Model:
    if not (name.startswith("ou") and name[2:].isdigit()):
        stem = name.rstrip("0123456789")
        size = {"dim": int(name[len(stem) :])} if stem != name else {}
        return df.models.model(stem, **size)
    dim = int(name[2:])
    rng = np.random.default_rng(dim)
    root, turn = rng.normal(size=(2, dim, dim)) / np.sqrt(dim)
    # A positive definite part makes it stable, an antisymmetric one turns it.
    rate = root @ root.T + 0.5 * np.eye(dim) + 0.5 * (turn - turn.T)
    noise = np.eye(dim) + 0.3 * rng.normal(size=(dim, dim))
    model = df.models.ornstein_uhlenbeck(dim, rate=rate, noise=noise)
    return dataclasses.replace(model, horizon=2.0)


def bench(name: str, preset: str, seed: int, starts: int) -> dict:
    model = case(name)
    jax.clear_caches()
    began = time.perf_counter()
    density = df.learn(model.sde, model.starts, model.horizon, key=jr.key(seed), preset=preset)
    seconds = time.perf_counter() - began
    times = TIMES * density.horizon
    rows = study(density, model.exact, key=jr.key(1000 + seed), starts=starts, times=times)
    rows = rows.summary()
    history = density.provenance.history
    return {
        "case": name,
        "preset": preset,
        "seed": seed,
        "starts": starts,
        "learn_s": round(seconds, 1),
        "error_at_horizon": rows[-1]["squared_l2"],
        "largest_mean_error": max(row["squared_l2"] for row in rows),
        "largest_error_at_horizon": rows[-1]["squared_l2_max"],
        "source_error_at_horizon": rows[-1]["source_squared_l2"],
        "fresh_residual_median": median(r.fresh_residual for r in history[1:]),
        "fresh_residual_last": history[-1].fresh_residual,
        "steps": len(history),
        "rejected": sum(r.rejected for r in history),
        "parameters": density.trajectory.thetas.shape[1],
        "samples": density.provenance.plan.samples,
        "errors": {f"{row['t']:.4g}": row["squared_l2"] for row in rows},
        "jax": jax.__version__,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", help="CASE:PRESET")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--starts", type=int, default=64)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for entry in options.cases:
        for seed in options.seeds:
            print(json.dumps(bench(*entry.split(":"), seed, options.starts)), flush=True)
