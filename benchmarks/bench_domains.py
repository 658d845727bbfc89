"""How accurate are densities of constrained states, and which map to the real line serves best?

One JSON line for each CASE:MAP and seed: the mean relative squared L2 error over fresh starts at
six times, the largest of these means, the source's own, and the wall time, compilation included.
Cases are CIR with (rate, level, noise) = (3, 0.3, 0.2) and (0.5, 0.06, 0.15), and geometric
Brownian motion, up to t = 1. The map is `auto` or the power of `diracflow.Positive`: 0 for the
logarithm, 0.5 for the square root. `heston:auto` is Heston's model (rate 2, level 0.09, noise 0.3,
correlation -0.6), learned up to t = 0.5: there the marginals of the log-price, against the inverted
characteristic function, and of the variance, against the CIR density.

Run: python benchmarks/bench_domains.py cir-far:auto cir-near:auto gbm:auto cir-far:0 heston:auto
"""

import argparse
import json
import time

import jax
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.evaluate import HestonMarginals, marginals
from diracflow.evaluate.errors import errors

CASES = {
    "cir-far": df.models.cir(3.0, 0.3, 0.2),
    "cir-near": df.models.cir(0.5, 0.06, 0.15),
    "gbm": df.models.geometric_brownian(),
}
# Shares of the horizon.
TIMES = np.array([1e-3, 1e-2, 0.1, 0.3, 0.6, 1.0])
HESTON = {"rate": 2.0, "level": 0.09, "noise": 0.3, "correlation": -0.6}
HESTON_TIME = 0.5


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
        "steps": len(density.provenance.history),
        "largest_mean_error": found.max(),
        "error_at_horizon": found[-1],
        "source_error_at_horizon": source[-1],
        "errors": {f"{t:.4g}": float(error) for t, error in zip(times, found, strict=True)},
        "jax": jax.__version__,
    }


def marginal_errors(
    density: df.AbstractTransitionDensity, exact: HestonMarginals, x0: np.ndarray
) -> dict[str, float]:
    """Mean relative squared L2 error of each marginal over some starts."""
    found = []
    for start in x0:
        price, variance = marginals(density, HESTON_TIME, start)
        found.append(
            (
                price.squared_l2(exact.log_price(price.x, HESTON_TIME, start)),
                variance.squared_l2(exact.variance(variance.x, HESTON_TIME, start)),
            )
        )
    return dict(zip(("log_price", "variance"), np.mean(found, axis=0).tolist(), strict=True))


def bench_heston(power: str, preset: str, seed: int, starts: int) -> dict:
    if power != "auto":
        raise ValueError(f"`heston` takes the map `auto` only; got {power!r}.")
    model, exact = df.models.heston(**HESTON), HestonMarginals(**HESTON)
    jax.clear_caches()
    began = time.perf_counter()
    density = df.learn(
        model.sde, model.starts, HESTON_TIME, key=jr.key(seed), preset=preset, certify=False
    )
    seconds = time.perf_counter() - began
    x0 = np.asarray(density.starts.sample(jr.key(1000 + seed), (starts,)))
    return {
        "case": "heston",
        "map": [part.describe() for part in density.chart.maps],
        "preset": preset,
        "seed": seed,
        "starts": starts,
        "t": HESTON_TIME,
        "learn_s": round(seconds, 1),
        "steps": len(density.provenance.history),
        "source_name": density.provenance.plan.source,
        "errors": marginal_errors(density, exact, x0),
        "source_errors": marginal_errors(density.source_only(), exact, x0),
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
            name, power = case.split(":")
            run = (power, options.preset, seed, options.starts)
            row = bench_heston(*run) if name == "heston" else bench(name, *run)
            print(json.dumps(row), flush=True)
