"""How accurate are densities of constrained states, and which map to the real line serves best?

One JSON line for each CASE:MAP and seed: the mean relative squared L2 error over fresh starts at
six times, the largest of these means, the source's own, and the wall time, compilation included.
Cases are CIR with (rate, level, noise) = (3, 0.3, 0.2) and (0.5, 0.06, 0.15), and geometric
Brownian motion, up to t = 1. The map is `auto` or the power of `diracflow.Positive`: 0 for the
logarithm, 0.5 for the square root.

Run: python benchmarks/bench_domains.py cir-far:auto cir-near:auto gbm:auto cir-far:0 cir-near:0
"""

import argparse
import json
import time

import jax
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.evaluate.errors import errors

CASES = {
    "cir-far": df.models.cir(3.0, 0.3, 0.2),
    "cir-near": df.models.cir(0.5, 0.06, 0.15),
    "gbm": df.models.geometric_brownian(),
}
# Shares of the horizon.
TIMES = np.array([1e-3, 1e-2, 0.1, 0.3, 0.6, 1.0])


def bench(name: str, power: str, preset: str, seed: int, starts: int) -> dict:
    model = CASES[name]
    domain = df.Positive(None if power == "auto" else float(power))
    sde = df.SDE(model.sde._drift, model.sde._diffusion, 1, domain=domain)
    jax.clear_caches()
    began = time.perf_counter()
    density = df.learn(
        sde, model.starts, model.horizon, key=jr.key(seed), preset=preset, certify=False
    )
    seconds = time.perf_counter() - began
    times, x0 = TIMES * density.horizon, density.starts.sample(jr.key(1000 + seed), (starts,))
    found, source = (
        errors(law, model.exact, times, x0, grid=193).squared_l2.mean(axis=1)
        for law in (density, density.source_only())
    )
    return {
        "case": name,
        "map": density.chart.maps[0].describe(),
        "preset": preset,
        "seed": seed,
        "starts": starts,
        "learn_s": round(seconds, 1),
        "steps": len(density.facts.history),
        "largest_mean_error": found.max(),
        "error_at_horizon": found[-1],
        "source_error_at_horizon": source[-1],
        "errors": {f"{t:.4g}": float(error) for t, error in zip(times, found, strict=True)},
        "jax": jax.__version__,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", help="CASE:MAP")
    parser.add_argument("--preset", default="accurate")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--starts", type=int, default=64)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for case in options.cases:
        for seed in options.seeds:
            row = bench(*case.split(":"), options.preset, seed, options.starts)
            print(json.dumps(row), flush=True)
