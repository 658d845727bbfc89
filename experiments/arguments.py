"""Test three arguments of the paper on the Beneš SDE, whose density is known.

- `measure`: collocation points from the flow, from simulated paths, or uniform in a box.
- `source`: the Euler step, or a standard Gaussian scaled by the square root of time. (Unscaled, it
  would not tend to the point mass, and the flow would have to be singular at the start.)
- `pinn`: steps in time, or the mean square residual over space and time, minimised by Adam over the
  knots of the same path, with the same flow, for the same wall time (its
  compilation is not counted).

One JSON line for each way: relative squared L2 errors, mean over 32 starts, at three times.

Run: python experiments/arguments.py measure source pinn --dim 1
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.galerkin.collocation import Points
from diracflow.sde.heun import heun_paths
from diracflow.training.loop import TimeLoop
from diracflow.training.state import Trajectory

paths = eqx.filter_jit(heun_paths)
SHARES, STARTS = (0.1, 0.5, 1.0), 32
KNOTS, BATCH = 17, 256  # of the path, and of an iteration
BOX, PATH_STEPS = 4.0, 64


class ScaledGaussian(df.AbstractGaussianSource):
    """The law N(x0, t I)."""

    sde: df.SDE
    start_time: float | None = eqx.field(static=True, default=0.0)

    def frame(self, tau, x0):
        return df.Frame(x0, jnp.sqrt(tau) * jnp.eye(len(x0)))


def row(density: df.TransitionDensity, model, **names) -> None:
    """Print the errors of a density; none at times that it has not reached."""
    starts = model.starts.sample(jr.key(7), (STARTS,))
    times = [share * model.horizon for share in SHARES if share * model.horizon <= density.horizon]
    found = df.errors(density, model.exact, times, starts).squared_l2.mean(axis=1) if times else []
    reached = {
        "reached": density.horizon / model.horizon,
        "errors": [float(f"{e:.2g}") for e in found],
    }
    print(json.dumps(names | reached), flush=True)


def learned(model, **options) -> tuple[df.TransitionDensity, float]:
    """Return a density and the seconds that it took."""
    began = time.monotonic()
    options = {"preset": "quick", "method": "galerkin", "certify": False, **options}
    try:
        density = df.learn(model.sde, model.starts, model.horizon, key=0, **options)
    except df.TrainingFailed as failure:
        density = failure.density
    return density, time.monotonic() - began


def placed_by(measure: str) -> Callable:
    """Return a replacement of `TimeLoop.place` that takes points from another law."""

    def place(loop, theta, clock, draws):
        clock = jnp.asarray(clock or loop.length)
        if measure == "uniform":
            y = BOX * (2 * jax.scipy.stats.norm.cdf(draws.noise) - 1)
        else:
            key, source = jr.fold_in(jr.key(11), len(loop.history)), loop.ansatz.source
            [ends] = paths(source.sde, 0.0, key, draws.x0, clock[None] ** 2, PATH_STEPS)
            y = jax.vmap(lambda x, x0: loop.ansatz.coordinates(x, clock, x0))(ends, draws.x0)
        return Points(draws.x0, y, draws.weight, draws.layout)

    return place


def measure(model) -> None:
    own = TimeLoop.place
    for name in ("flow", "paths", "uniform"):
        TimeLoop.place = own if name == "flow" else placed_by(name)
        density, seconds = learned(model, effective_share=1.0, source="euler", max_seconds=240)
        row(density, model, points=name, seconds=round(seconds))
    TimeLoop.place = own


def source(model) -> None:
    for name, choice in {"euler": "euler", "gaussian": ScaledGaussian(model.sde)}.items():
        density, seconds = learned(model, source=choice, max_seconds=240)
        row(density, model, source=name, seconds=round(seconds))


def pinn(model, rate: float) -> None:
    density, seconds = learned(model, source="euler", max_seconds=240)
    row(density, model, method="steps in time", seconds=round(seconds))
    found, iterations = minimised(density, model, seconds, rate)
    names = {"method": "space-time residual", "rate": rate, "iterations": iterations}
    row(found, model, seconds=round(seconds), **names)


def minimised(density, model, seconds: float, rate: float) -> tuple[df.TransitionDensity, int]:
    """Return the density whose path minimises the space-time residual, and the iterations made."""
    end = np.sqrt(model.horizon)
    clocks = np.linspace(0, end, KNOTS)
    first = jnp.asarray(density.trajectory.thetas[0])
    thetas = jnp.tile(first, (KNOTS, 1))

    def residual(thetas, clock, x0, noise):
        place = clock / end * (KNOTS - 1)
        below = jnp.clip(place.astype(int), 0, KNOTS - 2)
        chord = thetas[below + 1] - thetas[below]
        theta = thetas[below] + (place - below) * chord
        at = density.ansatz.at(theta)
        y = jax.lax.stop_gradient(at.place(noise, clock, x0))
        value = lambda theta: density.ansatz.at(theta).log_density(y, clock, x0)
        rate = jax.jvp(value, (theta,), (chord * (KNOTS - 1) / end,))[1]
        return rate - at.forcing(y, clock, x0)

    @jax.jit
    def step(thetas, moments, key, count, pace):
        keys = jr.split(key, 3)
        clock = jr.uniform(keys[0], (BATCH,), minval=1e-3 * end, maxval=end)
        x0 = model.starts.sample(keys[1], (BATCH,))
        noise = jr.normal(keys[2], (BATCH, model.sde.dim))
        each = jax.vmap(residual, (None, 0, 0, 0))
        slope = jax.grad(lambda thetas: jnp.mean(each(thetas, clock, x0, noise) ** 2))(thetas)
        slope = slope.at[0].set(0.0)  # the identity at the start is exact
        mean, square = 0.9 * moments[0] + 0.1 * slope, 0.999 * moments[1] + 0.001 * slope**2
        scale = jnp.sqrt(square / (1 - 0.999**count)) + 1e-8
        return thetas - pace * mean / (1 - 0.9**count) / scale, (mean, square)

    moments, count = (jnp.zeros_like(thetas), jnp.zeros_like(thetas)), 0
    jax.block_until_ready(step(thetas, moments, jr.key(3), jnp.asarray(1), rate))  # compile first
    began = time.monotonic()
    while (left := 1 - (time.monotonic() - began) / seconds) > 0:
        count += 1
        key = jr.fold_in(jr.key(3), count)
        thetas, moments = step(thetas, moments, key, jnp.asarray(count), rate * left)
        jax.block_until_ready(thetas)
    knots = np.asarray(thetas)
    chords = np.diff(knots, axis=0) / np.diff(clocks)[:, None]
    path = Trajectory(clocks, knots, chords, chords)
    return eqx.tree_at(lambda d: d.trajectory, density, path), count


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore", UserWarning)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="+", choices=("measure", "source", "pinn"))
    parser.add_argument("--dim", type=int, default=1)
    parser.add_argument("--rate", type=float, default=3e-3, help="of Adam, for `pinn`")
    options = parser.parse_args()
    for name in options.which:
        model = df.models.benes(dim=options.dim)
        if name == "pinn":
            pinn(model, options.rate)
        else:
            {"measure": measure, "source": source}[name](model)
