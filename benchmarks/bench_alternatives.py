"""What does a user get who picks something else for the transition density of an SDE?

The two-dimensional Beneš process at t = 3, from several starts. One JSON line for each way: what is
spent once, what is spent for each start, and the mean relative squared L2 error over the starts.
diracflow's one line serves all starts and all times up to 3; the grid and the kernel density
estimate begin anew for each start, and the fitted flow serves all starts at one time.

Run: pip install flowjax fplanck && python benchmarks/bench_alternatives.py
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.ndimage import gaussian_filter

import diracflow as df
from spline_flow import spline_flow

MODEL = df.models.benes()
# Euler-Maruyama steps: their bias is then below the noise of a million paths.
STEPS = 300
# The square [-REACH, REACH]^2 holds all but 1e-7 of the mass of starts within four deviations.
REACH, CELLS = 13.0, 260

Densities = Callable[[np.ndarray], np.ndarray]  # of one start, on the grid


def grid() -> tuple[np.ndarray, np.ndarray]:
    """Cell centres along an axis, and all of them as points."""
    axis = (np.arange(CELLS) + 0.5) * 2 * REACH / CELLS - REACH
    return axis, np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)


def squared_l2(values: np.ndarray, exact: np.ndarray) -> float:
    return float(np.sum((values - exact) ** 2) / np.sum(exact**2))


@partial(jax.jit, static_argnames="paths")
def simulate(key: jax.Array, x0: jax.Array, paths: int) -> jax.Array:
    """Ends of Euler-Maruyama paths, from one start or from as many as there are paths."""
    length, sde = MODEL.horizon / STEPS, MODEL.sde
    start = jnp.broadcast_to(x0, (paths, sde.dim))

    def step(x: jax.Array, k: jax.Array) -> tuple:
        t, noise = k * length, jr.normal(jr.fold_in(key, k), x.shape)
        drift = jax.vmap(partial(sde.drift, t))(x)
        sigma = jax.vmap(partial(sde.diffusion, t))(x)
        return x + drift * length + jnp.sqrt(length) * jnp.einsum("nij,nj->ni", sigma, noise), None

    return jax.lax.scan(step, start, jnp.arange(STEPS))[0]


def kernel_density(paths: int) -> Densities:
    """Paths from the start, binned and smoothed with Silverman's bandwidth."""
    edges = np.linspace(-REACH, REACH, CELLS + 1)

    def densities(x0: np.ndarray) -> np.ndarray:
        ends = np.asarray(simulate(jr.key(paths), jnp.asarray(x0), paths))
        counts = np.histogram2d(*ends.T, bins=(edges, edges))[0]
        cell = 2 * REACH / CELLS
        bandwidth = ends.std(axis=0) * paths ** (-1 / 6)
        return gaussian_filter(counts, bandwidth / cell, mode="constant") / (paths * cell**2)

    densities(np.zeros(2))  # compile
    return densities


def grid_solver(cells: int) -> Densities:
    """fplanck's sparse master equation from a cell with all the mass."""
    vars(np)["product"] = np.prod  # fplanck 0.2.2 was written for NumPy 1
    import fplanck
    from scipy import constants
    from scipy.interpolate import RegularGridInterpolator

    def force(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        points = jnp.stack([jnp.asarray(x), jnp.asarray(y)], axis=-1).reshape(-1, 2)
        drift = jax.vmap(partial(MODEL.sde.drift, 0.0))(points)
        return 2 * np.asarray(drift).T.reshape(2, *x.shape)  # its drift is the force over the drag

    # In units in which a temperature of one and a drag of two give the noise of a unit Wiener
    # process.
    solver = fplanck.fokker_planck(
        temperature=1 / constants.k,
        drag=2.0,
        extent=[2 * REACH] * 2,
        resolution=2 * REACH / cells,
        force=force,
    )
    _, points = grid()

    def densities(x0: np.ndarray) -> np.ndarray:
        # Mass on the four cells around the start, so that its mean is right.
        def start(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            hats = [
                np.maximum(0, 1 - np.abs(axis - at) / (2 * REACH / cells))
                for axis, at in zip((x, y), x0, strict=True)
            ]
            return hats[0] * hats[1]

        values = solver.propagate(start, MODEL.horizon)
        values = values / values.sum() / (2 * REACH / cells) ** 2
        interpolate = RegularGridInterpolator(
            solver.axes, values, method="cubic", bounds_error=False, fill_value=0.0
        )
        return interpolate(points)

    return densities


def fitted_flow(pairs: int, epochs: int) -> Densities:
    """Simulated pairs of start and end, and flowjax's conditional spline flow fitted to them."""
    from flowjax.bijections import Affine
    from flowjax.distributions import Transformed
    from flowjax.train import fit_to_data

    x0 = MODEL.starts.sample(jr.key(1), (pairs,))
    ends = simulate(jr.key(2), x0, pairs)
    centre, scale = ends.mean(axis=0), ends.std(axis=0)
    flow, _ = fit_to_data(
        *(jr.key(4), spline_flow(), ((ends - centre) / scale, x0)),
        learning_rate=2e-3,
        batch_size=1024,
        max_epochs=epochs,
        show_progress=False,
    )
    flow = Transformed(flow, Affine(centre, scale))
    _, points = grid()
    points = jnp.asarray(points.reshape(-1, 2))
    log_prob = eqx.filter_jit(flow.log_prob)

    def densities(x0: np.ndarray) -> np.ndarray:
        return np.exp(log_prob(points, jnp.asarray(x0))).reshape(CELLS, CELLS)

    densities(np.zeros(2))  # compile
    return densities


def learned(preset: str) -> Densities:
    density = df.learn(MODEL.sde, MODEL.starts, MODEL.horizon, key=jr.key(0), preset=preset)
    _, points = grid()

    def densities(x0: np.ndarray) -> np.ndarray:
        return np.asarray(density.prob(points, MODEL.horizon, x0))

    densities(np.zeros(2))  # compile
    return densities


WAYS: dict[str, Callable[[], Densities]] = {
    "diracflow quick": partial(learned, "quick"),
    "diracflow accurate": partial(learned, "accurate"),
    "Euler-Maruyama + KDE, 1e5 paths": partial(kernel_density, 10**5),
    "Euler-Maruyama + KDE, 1e6 paths": partial(kernel_density, 10**6),
    "fplanck, 104 x 104": partial(grid_solver, 104),
    "fplanck, 260 x 260": partial(grid_solver, 260),
    "simulate 2e5 pairs + flowjax": partial(fitted_flow, 200_000, 20),
}


def bench(way: str, starts: np.ndarray) -> dict:
    _, points = grid()
    began = time.perf_counter()
    densities = WAYS[way]()
    prepared = time.perf_counter()
    found = [densities(x0) for x0 in starts]
    done = time.perf_counter()
    exact = [np.asarray(MODEL.exact.prob(points, MODEL.horizon, x0)) for x0 in starts]
    errors = [squared_l2(*pair) for pair in zip(found, exact, strict=True)]
    return {
        "way": way,
        "once_s": round(prepared - began, 1),
        "per_start_s": round((done - prepared) / len(starts), 4),
        "points_per_start": CELLS**2,
        "mean_squared_l2": float(np.mean(errors)),
        "largest_squared_l2": float(np.max(errors)),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--starts", type=int, default=8)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    draws = np.asarray(MODEL.starts.sample(jr.key(5), (options.starts,)))
    for name in options.ways:
        print(json.dumps(bench(name, draws)), flush=True)
