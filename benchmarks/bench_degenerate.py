"""Does it work where noise enters the velocity only?

One JSON line for each CASE:PRESET and seed: source and reason, how far the training came, the mean
relative squared L2 error over eight starts at some times, and that of the source alone. `linear` is
the damped oscillator, compared with its exact density; `well` is Langevin's equation in the double
well, compared with a spectral grid solution, whose own error `reference` says: the difference to a
coarser grid.

Run: python benchmarks/bench_degenerate.py linear:accurate well:accurate
"""

import argparse
import json
import time
import warnings

import jax
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.evaluate.spectral_grid import SpectralGrid, transition_densities

STARTS = 8
TIMES = [0.5, 1.0, 2.0]
# Position and velocity; from starts within two standard deviations mass stays in the inner part.
LOW, HIGH = np.array([-4.5, -7.5]), np.array([4.5, 7.5])
POINTS, COARSE = 111, 91


def learned(model: df.models.Model, **options: object) -> tuple[df.TransitionDensity, float]:
    jax.clear_caches()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            density = df.learn(model.sde, model.starts, model.horizon, **options)
        except df.TrainingFailed as failure:
            density = failure.density
    return density, time.perf_counter() - began


def exact_errors(model: df.models.Model, density: df.TransitionDensity, seed: int) -> dict:
    starts = model.starts.sample(jr.key(5 + seed), (STARTS,))
    times = [t for t in (1e-4, 1e-2, *TIMES) if t <= density.horizon]
    pair = [
        df.errors(d, model.exact, times, starts, key=jr.key(seed)).squared_l2.mean(axis=1)
        for d in (density, density.source_only())
    ]
    return {str(t): _row(a, b) for t, a, b in zip(times, *pair, strict=True)}


def grid_errors(model: df.models.Model, density: df.TransitionDensity, seed: int) -> dict:
    starts = np.clip(model.starts.sample(jr.key(5 + seed), (STARTS,)), -2, 2)
    grid, coarse = (SpectralGrid(LOW, HIGH, points) for points in (POINTS, COARSE))
    reference = transition_densities(model.sde, grid, starts, TIMES)
    other = transition_densities(model.sde, coarse, starts[:1], TIMES)[:, 0]
    rows = {}
    for index, t in enumerate(TIMES):
        if t > density.horizon * (1 + 1e-9):
            rows[str(t)] = None
            continue
        p, nodes = reference[index], grid.nodes()
        pair = []
        for candidate in (density, density.source_only()):
            q = np.stack([np.asarray(candidate.prob(nodes, t, x0)) for x0 in starts])
            pair.append(np.mean(_relative(q, p)))
        # On the nodes of the coarse grid both are compared with the density itself.
        q = [np.asarray(density.prob(g.nodes(), t, starts[0])) for g in (grid, coarse)]
        moved = abs(_relative(q[0], p[0]) - _relative(q[1], other[index]))
        rows[str(t)] = _row(*pair) | {"reference": float(f"{moved:.1g}")}
    return rows


def _relative(q: np.ndarray, p: np.ndarray) -> np.ndarray:
    return np.sum((q - p) ** 2, axis=(-2, -1)) / np.sum(p**2, axis=(-2, -1))


def _row(error: float, source: float) -> dict:
    return {"error": float(f"{error:.2g}"), "source": float(f"{source:.2g}")}


CASES = {
    "linear": (df.models.linear_langevin, exact_errors),
    "well": (df.models.langevin, grid_errors),
}


def bench(name: str, preset: str, seed: int, limit: float, settings: dict) -> dict:
    make, judge = CASES[name]
    model = make()
    options = {"key": jr.key(seed), "preset": preset, "max_seconds": limit, **settings}
    density, seconds = learned(model, **options)
    history, provenance = density.provenance.history, density.provenance
    return {
        "case": name,
        "preset": preset,
        "settings": settings,
        "seed": seed,
        "source": provenance.plan.source,
        "why": provenance.plan.reasons["source"],
        "status": density.status.name,
        "reached": round(density.horizon, 4),
        "learn_s": round(seconds, 1),
        "errors": judge(model, density, seed),
        "last_fresh_residual": float(f"{history[-1].fresh_residual:.2g}"),
        "last_residual": float(f"{history[-1].residual:.2g}"),
        "largest_forcing": float(f"{max(r.forcing for r in history):.2g}"),
        "bound": float(f"{history[-1].bound:.2g}"),
        "steps": len(history),
        "M": density.trajectory.thetas.shape[1],
        "N": provenance.plan.samples,
    }


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", metavar="CASE:PRESET")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each training")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    changes = {k: json.loads(v) for k, v in (text.split("=") for text in arguments.set)}
    for pair in arguments.cases:
        for seed in arguments.seeds:
            row = bench(*pair.split(":"), seed, arguments.limit, changes)
            print(json.dumps(row), flush=True)
