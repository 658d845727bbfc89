"""How well is a density learned over parameters of the SDE, or over times of the start?

One JSON line for each CASE:PRESET and seed: the mean relative squared L2 error over 64 draws of
start, parameters and start time together, at some times, and that of the source alone.
`family` is the Ornstein-Uhlenbeck process over a box of rate, level and noise; `cir` and `gbm` are
the Cox-Ingersoll-Ross process and geometric Brownian motion over boxes of theirs; `seasonal` is the
process whose level goes through the seasons, started at any time of a year; `-euler` the same from
Euler's step, so that the flow has to learn what the default source knows. `well` is a double well,
b = depth (x - x^3), over its depth and the noise, against spectral grid solutions at six of them.

Run: python benchmarks/bench_parameters.py family:accurate seasonal:accurate cir:accurate gbm:quick
"""

import argparse
import json
import time
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.evaluate.spectral_grid import SpectralGrid, transition_densities

STARTS = 64
WELLS = 6


def well() -> df.models.Model:
    sde = df.SDE(
        drift=lambda t, x, p: p["depth"] * (x - x**3),
        diffusion=lambda t, x, p: p["noise"] * jnp.eye(1),
        dim=1,
        params=("depth", "noise"),
    )
    box = {"depth": df.Uniform(0.5, 1.5), "noise": df.Uniform(0.6, 1.0)}
    return df.models.Model("well", sde, df.Normal(0.0, 1.0), 2.0, None, box)


def problem(case: str) -> df.models.Model:
    if case == "well":
        return well()
    names = {
        "family": "ornstein_uhlenbeck_family",
        "seasonal": "seasonal",
        "cir": "cir_family",
        "gbm": "geometric_brownian_family",
    }
    return df.models.model(names[case])


def learned(model: df.models.Model, **options: object) -> tuple[df.TransitionDensity, float]:
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            density = df.learn(
                *(model.sde, model.starts, model.horizon),
                params=model.params,
                start_time=model.start_time,
                **options,
            )
        except df.TrainingFailed as failure:
            density = failure.density
    return density, time.perf_counter() - began


def draws(density: df.TransitionDensity, seed: int, count: int) -> tuple[np.ndarray, dict]:
    g = density.scope.law.sample(jr.key(5 + seed), (count,))
    return np.asarray(g[:, : density.dim]), density._keywords(g[:, density.dim :])


def exact_errors(model: df.models.Model, density: df.TransitionDensity, seed: int) -> dict:
    x0, given = draws(density, seed, STARTS)
    times = [share * density.horizon for share in (1e-3, 1e-2, 0.1, 0.3, 1.0)]
    pair = [
        df.errors(d, model.exact, times, x0, key=jr.key(seed), **given).squared_l2.mean(axis=1)
        for d in (density, density.source_only())
    ]
    return {f"{t:g}": entry(*found) for t, *found in zip(times, *pair, strict=True)}


def grid_errors(model: df.models.Model, density: df.TransitionDensity, seed: int) -> dict:
    grid, times = SpectralGrid([-4.0], [4.0], 267), [0.1, 0.5, 2.0]
    x0, given = draws(density, seed, WELLS)
    x0, nodes = np.clip(x0, -2.0, 2.0), grid.nodes()
    found = np.zeros((2, len(times), WELLS))
    for index in range(WELLS):
        params = {name: float(values[index]) for name, values in given["params"].items()}
        member = model.sde.at(params)
        truth = transition_densities(member, grid, x0[index : index + 1], times)
        for i, (t, p) in enumerate(zip(times, truth, strict=True)):
            for j, candidate in enumerate((density, density.source_only())):
                q = np.asarray(candidate.prob(nodes, t, x0[index], params))
                found[j, i, index] = np.sum((q - p[0]) ** 2) / np.sum(p[0] ** 2)
    pair = found.mean(axis=2)
    return {f"{t:g}": entry(*both) for t, *both in zip(times, *pair, strict=True)}


def entry(error: float, source: float) -> dict:
    return {"error": float(f"{error:.2g}"), "source": float(f"{source:.2g}")}


def bench(name: str, preset: str, seed: int, limit: float) -> dict:
    case, _, source = name.partition("-")
    model = problem(case)
    options = {"source": source} if source else {}
    density, seconds = learned(
        model, key=jr.key(seed), preset=preset, max_seconds=limit, certify=False, **options
    )
    judge = grid_errors if model.exact is None else exact_errors
    return {
        "case": name,
        "preset": preset,
        "seed": seed,
        "status": density.status.name,
        "reached": round(density.horizon, 4),
        "learn_s": round(seconds, 1),
        "errors": judge(model, density, seed),
        "source": density.provenance.plan.source,
        "steps": len(density.provenance.history),
        "M": density.trajectory.thetas.shape[1],
        "N": density.provenance.plan.samples,
    }


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", metavar="CASE:PRESET")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each training")
    arguments = parser.parse_args()
    for pair in arguments.cases:
        for seed in arguments.seeds:
            print(json.dumps(bench(*pair.split(":"), seed, arguments.limit)), flush=True)
