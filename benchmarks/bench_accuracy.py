"""How accurate is a preset on a model with an exact density, and what does it cost?

One JSON line for each MODEL:PRESET, with the mean relative squared L2 error over fresh starts at
sixteen times, the largest of these means, the source's own error, and the wall time.

Run: python benchmarks/bench_accuracy.py benes:paper sheared:paper --starts 64
"""

import argparse
import json
import time
from statistics import median

import jax
import jax.random as jr

import diracflow as df
from diracflow.evaluate.study import study


def bench(name: str, preset: str, seed: int, starts: int) -> dict:
    model = df.models.model(name)
    began = time.perf_counter()
    density = df.learn(model.sde, model.starts, model.horizon, key=jr.key(seed), preset=preset)
    seconds = time.perf_counter() - began
    rows = study(density, model.exact, key=jr.key(seed + 1), starts=starts).summary()
    return {
        "model": name,
        "preset": preset,
        "seed": seed,
        "starts": starts,
        "jax": jax.__version__,
        "learn_s": round(seconds, 1),
        "steps": len(density.facts.history),
        "parameters": density.trajectory.thetas.shape[1],
        "fresh_residual_median": median(r.fresh_residual for r in density.facts.history[1:]),
        "error_at_horizon": rows[-1]["squared_l2"],
        "largest_mean_error": max(row["squared_l2"] for row in rows),
        "source_error_at_horizon": rows[-1]["source_squared_l2"],
        "errors": {f"{row['t']:.4g}": row["squared_l2"] for row in rows},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", help="MODEL:PRESET")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--starts", type=int, default=64)
    options = parser.parse_args()
    for case in options.cases:
        for seed in options.seeds:
            print(json.dumps(bench(*case.split(":"), seed, options.starts)), flush=True)
