"""How far trainings get on SDEs of two to ten dimensions, and how wrong they are at the end.

Distances are total variations from a reference by simulated paths at the time reached, with
standard errors, for starts drawn from the start law (`df.evaluate.measured_distance`). `source` is
the distance of the source without the flow. In the plane there is also `error`: the mean relative
squared L2 error over eight starts at half the horizon and at the horizon, against spectral grid
solutions in the coordinates of the domain.

Run: python benchmarks/bench_horizon.py lorenz epidemic --seconds 150 --seeds 0
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
from diracflow.sde.problem import checked_problem
from space_problems import PROBLEMS

# Boxes that hold the densities, in the coordinates of the domain, and nodes along a side.
GRIDS = {
    "gene-switch": SpectralGrid([-2.0, -2.0], [9.5, 9.5], 121),
    "star": SpectralGrid([-4.0, -4.0], [4.0, 4.0], 121),
    "toggle": SpectralGrid([-4.5, -4.5], [4.5, 4.5], 121),
    "plane": SpectralGrid([-3.0, -4.5], [3.0, 4.5], 121),
    "cycle": SpectralGrid([-5.0, -6.5], [5.0, 6.5], 121),
}


def measured(density: df.TransitionDensity, sde: df.SDE, t: float, x0: np.ndarray) -> list[float]:
    """Return a distance and its standard error."""
    found = df.evaluate.measured_distance(density, t, x0, sde=sde, key=2, paths=2**17)
    return [round(number, 4) for number in found]


def grid_errors(name: str, density: df.TransitionDensity, t: float) -> list[float]:
    """Return mean errors over starts at half a time and at that time."""
    sde, law, _ = PROBLEMS[name]()
    with jax.enable_x64(True):
        problem = checked_problem(sde, law, t, None, 0.0)
        chart, grid, times = problem.chart, GRIDS[name], [t / 2, t]
        starts = np.asarray(problem.draws(8))
        exact = transition_densities(problem.equation, grid, starts, times)[..., ::2, ::2]
        nodes = jax.numpy.asarray(grid.nodes()[::2, ::2])
        states = np.asarray(chart.from_real(nodes))
        # The density of the coordinates is that of the state times the derivative of the map.
        slope = jax.vmap(jax.vmap(jax.jacfwd(chart.from_real)))(nodes)
        volume = np.abs(np.linalg.det(np.asarray(slope)))
        found = [
            [volume * density.prob(states, time, chart.from_real(start)) for start in starts]
            for time in times
        ]
    axes = (2, 3)
    errors = np.sum((np.asarray(found) - exact) ** 2, axes) / np.sum(exact**2, axes)
    return [float(f"{error:.2g}") for error in errors.mean(axis=1)]


def bench(name: str, seed: int, seconds: float, starts: int) -> dict:
    sde, law, horizon = PROBLEMS[name]()
    began, status = time.monotonic(), df.Status.FINISHED
    try:
        density = df.learn(
            sde, law, horizon, key=seed, preset="quick", certify=False, max_seconds=seconds
        )
    except df.TrainingFailed as failure:
        density, status = failure.density, failure.status
    wall, t = time.monotonic() - began, density.horizon
    trials = np.asarray(law.sample(jr.key(99), (starts,)))
    plain = density.source_only() if isinstance(density, df.TransitionDensity) else None
    far = {"learned": density} | ({} if plain is None else {"source": plain})
    plan = density.provenance.plan
    on_grid = {"error": grid_errors(name, density, t)} if name in GRIDS else {}
    return {
        "problem": name,
        "seed": seed,
        "seconds": round(wall),
        "reached": t / horizon,
        "status": str(status.name),
        "steps": len(density.provenance.history),
        "method": plan.method,
        "source": plan.source,
        "legs": plan.legs,
        "parameters": plan.parameters,
        **on_grid,
        **{f"tv_{k}": [measured(d, sde, t, x0) for x0 in trials] for k, d in far.items()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=", ".join(PROBLEMS))
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--starts", type=int, default=3)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    for problem in options.problems or PROBLEMS:
        for number in options.seeds:
            row = bench(problem, number, options.seconds, options.starts)
            print(json.dumps(row), flush=True)
