r"""How does the error of a propagated law fall with the number of starts, at short and long times?

The Beneš SDE from the paper's mixture of two Gaussians, with the exact transition density: what is
left is the error of averaging over starts. "law" is `propagate` from the law itself, "draws" from
as many independent draws of it. The reference is a product of one-dimensional integrals, which the
trapezoidal rule gives to rounding: axes are independent in $y = R^\top x$, for round Gaussians too.

Run: python benchmarks/bench_green.py --starts 256 1750 4096 16384
"""

import argparse
import json
import time

import jax
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.uses.green import AbstractPropagated

WEIGHTS, CENTRES, WIDTHS = (0.25, 0.75), (1.0, -0.75), (0.1, 0.5)
GRID = 61


def mixture() -> df.Mixture:
    laws = [df.Normal([c, c], s) for c, s in zip(CENTRES, WIDTHS, strict=True)]
    return df.Mixture(laws, WEIGHTS)


def axis_density(y: np.ndarray, t: float, mean: float, width: float) -> np.ndarray:
    """One axis: the mean over y0 of N(y; y0, t) exp(-t/2) cosh(y) / cosh(y0), for a normal y0."""
    variance = 1 / (1 / width**2 + 1 / t)
    centre = variance * (mean / width**2 + y / t)
    z = np.linspace(-9, 9, 401)
    weights = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    inner = np.sum(weights / np.cosh(centre[..., None] + np.sqrt(variance) * z), axis=-1)
    total = width**2 + t
    outer = np.exp(-((y - mean) ** 2) / (2 * total)) / np.sqrt(2 * np.pi * total)
    return np.cosh(y) * np.exp(-t / 2) * outer * inner


def reference(x: np.ndarray, t: float, rotation: np.ndarray) -> np.ndarray:
    y, parts = x @ rotation, []
    for weight, centre, width in zip(WEIGHTS, CENTRES, WIDTHS, strict=True):
        means = rotation.T @ np.full(2, centre)
        axes = [axis_density(y[..., i], t, means[i], width) for i in range(2)]
        parts.append(weight * axes[0] * axes[1])
    return sum(parts)


def bench(t: float, starts: int, seed: int) -> dict:
    exact, reach = df.models.benes().exact, 2.5 + t + 4.5 * np.sqrt(t)
    axis = np.linspace(-reach, reach, GRID)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    true = reference(x, t, exact.rotation)
    law = df.propagate(exact, mixture(), t, draws=starts)
    draws = df.propagate(exact, mixture().sample(jr.key(seed), (starts,)), t)
    began = time.perf_counter()
    found = {"law": np.asarray(law.prob(x)), "draws": np.asarray(draws.prob(x))}
    return {
        "t": t,
        "starts": starts,
        **{f"{name}_squared_l2": squared_l2(p, true) for name, p in found.items()},
        "law_score": error_score(law, x, true),
        "seconds": round(time.perf_counter() - began, 1),
    }


def squared_l2(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.sum((found - true) ** 2) / np.sum(true**2))


def error_score(law: AbstractPropagated, x: np.ndarray, true: np.ndarray) -> float:
    """Root mean square of the error over its estimated standard error, where there is mass."""
    score = (np.asarray(law.prob(x)) / true - 1) / np.asarray(law.standard_error(x))
    return float(np.sqrt(np.mean(score[true > 1e-3 * true.max()] ** 2)))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, nargs="+", default=[256, 1750, 4096, 16384])
    parser.add_argument("--times", type=float, nargs="+", default=[0.01, 0.1, 1.0, 3.0])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for t in options.times:
        for starts in options.starts:
            print(json.dumps(bench(t, starts, options.seed)), flush=True)
