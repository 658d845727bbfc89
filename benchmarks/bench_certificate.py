"""Does the certificate hold, and how far is it from the truth?

One JSON line for each MODEL:PRESET: at 10 times from 0.001 of the horizon up to it and 12 starts
from the start law (with parameters and start times, where the model has them), the bound against
the true total variation distance. At a third of the times and half of the starts the estimate, too.

Run: python benchmarks/bench_certificate.py benes:quick sheared:quick ou2:quick --seeds 0
"""

import argparse
import json
import time
import warnings
from typing import Any

import jax
import jax.random as jr
import numpy as np

import diracflow as df
from bench_accuracy import case
from diracflow.density.summary import split

TIMES, STARTS = 10, 12


def bench(name: str, preset: str, seed: int, settings: dict) -> dict:
    model = case(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        density = df.learn(
            *(model.sde, model.starts, model.horizon),
            params=model.params,
            start_time=model.start_time,
            key=jr.key(seed),
            preset=preset,
            **settings,
        )
    times = density.horizon * np.geomspace(1e-3, 1.0, TIMES)
    draws = density.scope.law.sample(jr.key(100 + seed), (STARTS,))
    x0, given = split(density, draws)
    began = time.perf_counter()
    found = density.certificate(jr.key(seed), times[:, None], x0, **given)
    seconds = time.perf_counter() - began
    true = df.errors(density, model.exact, times, x0, key=jr.key(200 + seed), **given)
    noise = np.hypot(found.stderr, true.total_variation_stderr)
    ratio = found.bound / true.total_variation
    return {
        "model": name,
        "preset": preset,
        "seed": seed,
        "settings": settings,
        "pairs": true.total_variation.size,
        "holds": int(np.sum(true.total_variation <= found.bound + 3 * noise)),
        "true_at_horizon": float(f"{true.total_variation[-1].mean():.2g}"),
        "bound_at_horizon": float(f"{found.bound[-1].mean():.2g}"),
        "stderr_at_horizon": float(f"{found.stderr[-1].mean():.1g}"),
        "median_ratio": round(float(np.median(ratio)), 1),
        "smallest_ratio": round(float(ratio.min()), 2),
        "largest_ratio": round(float(ratio.max()), 1),
        "certificate_s": round(seconds, 1),
        **estimated(density, seed, times[::-3], draws[::2], true),
    }


def estimated(
    density: df.TransitionDensity, seed: int, times: np.ndarray, some: np.ndarray, true: Any
) -> dict:
    """Return how far estimates are from the truth, in its units and in standard errors."""
    x0, given = split(density, some)
    began = time.perf_counter()
    found = density.certificate(jr.key(seed), times[:, None], x0, estimate=True, **given).estimate
    exact, noise = (
        np.asarray(v)[::-3, ::2] for v in (true.total_variation, true.total_variation_stderr)
    )
    below = (exact - found.value) / np.hypot(found.stderr, noise)
    ratio = found.value / exact
    return {
        "estimates": int(exact.size),
        "estimate_below_by_three": int(np.sum(below > 3)),
        "estimate_median_ratio": round(float(np.median(ratio)), 2),
        "estimate_smallest_ratio": round(float(ratio.min()), 2),
        "estimate_largest_ratio": round(float(ratio.max()), 1),
        "estimate_s": round(time.perf_counter() - began, 1),
    }


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", metavar="MODEL:PRESET")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    pairs = [text.split("=") for text in arguments.set]
    settings = {name: value if value.isalpha() else json.loads(value) for name, value in pairs}
    for text in arguments.cases:
        for seed in arguments.seeds:
            print(json.dumps(bench(*text.split(":"), seed, settings)), flush=True)
