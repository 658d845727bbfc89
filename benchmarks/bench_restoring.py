"""Does it work where drifts pull back: wells, stiff and long relaxation, a limit cycle?

One JSON line for each CASE:PRESET and seed: how far the training came, the mean relative squared L2
error over eight starts at some times, and that of the source alone. References are spectral grid
solutions in one and two dimensions and the exact density for Ornstein-Uhlenbeck processes.

Run: python benchmarks/bench_restoring.py well:accurate steep:accurate --seeds 0 1 2
"""

import argparse
import dataclasses
import json
import time
import warnings
from collections.abc import Callable, Sequence
from statistics import median

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.evaluate.spectral_grid import SpectralGrid, transition_densities

STARTS = 8


@dataclasses.dataclass(frozen=True)
class Case:
    sde: df.SDE
    starts: df.Normal
    times: Sequence[float]
    grid: SpectralGrid


def cases() -> dict[str, Case]:
    def noise(size: float, dim: int) -> Callable:
        return lambda t, x: size * jnp.eye(dim)

    def plane(t, x):
        return -jnp.stack([4 * x[0] * (x[0] ** 2 - 1) + 0.3 * x[1], x[1] + 0.3 * x[0]])

    def cycle(t, x):
        return jnp.stack([x[1], (1 - x[0] ** 2) * x[1] - x[0]])

    def wavy(t, x):
        return (0.5 + 0.3 * jnp.sin(x))[:, None]

    line = [0.1, 0.5, 1.0]
    return {
        "well": Case(
            df.SDE(lambda t, x: x - x**3, noise(0.7, 1), 1),
            *(df.Normal(0.0, 1.0), [*line, 2.5, 5.0], SpectralGrid([-4.0], [4.0], 267)),
        ),
        "steep": Case(
            df.SDE(lambda t, x: -4 * x * (x**2 - 1), noise(1.0, 1), 1),
            *(df.Normal(0.0, 1.0), [*line, 3.0], SpectralGrid([-3.7], [3.7], 267)),
        ),
        "plane": Case(
            df.SDE(plane, noise(1.0, 2), 2),
            *(df.Normal(0.0, 0.8), [0.5, 1.0, 3.0], SpectralGrid([-3.0, -4.5], [3.0, 4.5], 101)),
        ),
        "cycle": Case(
            df.SDE(cycle, noise(0.5, 2), 2),
            *(df.Normal(0.0, 1.0), [0.5, 1.0, 2.0, 5.0]),
            SpectralGrid([-5.0, -6.5], [5.0, 6.5], 121),
        ),
        "wavy": Case(
            df.SDE(lambda t, x: 1 - x, wavy, 1),
            *(df.Normal(0.0, 1.0), [*line, 3.0], SpectralGrid([-4.5], [5.5], 267)),
        ),
    }


def ornstein_uhlenbeck(dim: int) -> df.models.Model:
    """Rates from 0.1 to 20, along random directions."""
    rates = np.geomspace(0.1, 20, dim) if dim > 1 else np.array([20.0])
    turn = np.linalg.qr(np.random.default_rng(dim).normal(size=(dim, dim)))[0]
    model = df.models.ornstein_uhlenbeck(dim, rate=turn @ np.diag(rates) @ turn.T)
    return dataclasses.replace(model, horizon=10.0)


def learned(*args: object, **kwargs: object) -> tuple[df.TransitionDensity, float]:
    jax.clear_caches()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            density = df.learn(*args, **kwargs)
        except df.TrainingFailed as failure:
            density = failure.density
    return density, time.perf_counter() - began


def grid_errors(case: Case, density: df.TransitionDensity, seed: int) -> dict:
    starts = np.asarray(case.starts.expand(case.sde.dim).sample(jr.key(5 + seed), (STARTS,)))
    # The grid's solutions hold for starts well inside its box.
    low, high = np.array(case.grid.low) / 2, np.array(case.grid.high) / 2
    starts = np.clip(starts, low, high)
    reference = transition_densities(case.sde, case.grid, starts, case.times)
    # In the plane every second node suffices for sums of squares, which are smooth.
    some = (slice(None, None, 2),) * case.sde.dim if case.sde.dim > 1 else (slice(None),)
    nodes, reference = case.grid.nodes()[some], reference[(..., *some)]
    candidates = density, density.source_only()
    rows = {}
    for t, p in zip(case.times, reference, strict=True):
        if t > density.horizon * (1 + 1e-9):
            rows[str(t)] = None
            continue
        pair = []
        for candidate in candidates:
            q = np.stack([np.asarray(candidate.prob(nodes, t, x0)) for x0 in starts])
            axes = tuple(range(1, q.ndim))
            pair.append(float(np.mean(np.sum((q - p) ** 2, axes) / np.sum(p**2, axes))))
        rows[str(t)] = {"error": float(f"{pair[0]:.2g}"), "source": float(f"{pair[1]:.2g}")}
    return rows


def exact_errors(model: df.models.Model, density: df.TransitionDensity, seed: int) -> dict:
    starts = model.starts.sample(jr.key(5 + seed), (STARTS,))
    times = [t for t in (0.01, 0.1, 1.0, 10.0) if t <= density.horizon]
    pair = [
        df.errors(d, model.exact, times, starts, key=jr.key(seed)).squared_l2.mean(axis=1)
        for d in (density, density.source_only())
    ]
    rows = zip(times, *pair, strict=True)
    return {str(t): {"error": float(f"{a:.2g}"), "source": float(f"{b:.2g}")} for t, a, b in rows}


def bench(name: str, preset: str, seed: int, limit: float) -> dict:
    options = {"key": jr.key(seed), "preset": preset, "max_seconds": limit}
    if name.startswith("ou"):
        model = ornstein_uhlenbeck(int(name[2:]))
        density, seconds = learned(model.sde, model.starts, model.horizon, **options)
        rows = exact_errors(model, density, seed)
    else:
        case = cases()[name]
        density, seconds = learned(case.sde, case.starts, case.times[-1], **options)
        rows = grid_errors(case, density, seed)
    return {"case": name, "preset": preset, "seed": seed, **summary(density, seconds, rows)}


def summary(density: df.TransitionDensity, seconds: float, rows: dict) -> dict:
    """What one line says of a training, with its errors in `rows`."""
    history = density.provenance.history
    return {
        "status": density.status.name,
        "reached": round(density.horizon, 4),
        "learn_s": round(seconds, 1),
        "errors": rows,
        "fresh_residual": float(f"{median(r.fresh_residual for r in history):.2g}"),
        "largest_forcing": float(f"{max(r.forcing for r in history):.2g}"),
        "steps": len(history),
        "M": density.trajectory.thetas.shape[1],
        "N": density.provenance.plan.samples,
    }


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", metavar="CASE:PRESET")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each training")
    arguments = parser.parse_args()
    for pair in arguments.cases:
        for seed in arguments.seeds:
            print(json.dumps(bench(*pair.split(":"), seed, arguments.limit)), flush=True)
