"""Run with two devices: velocities and implicit iterations with every layout, against one."""

import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.galerkin.collocation import draw, laid_out, place
from diracflow.galerkin.devices import Layout, mesh_over
from diracflow.galerkin.implicit import factor, iterate, projected_size, system, values_at
from diracflow.galerkin.rows import linearise
from diracflow.galerkin.velocity import velocity
from diracflow.planning.prepare import prepare
from diracflow.planning.settings import settings_for
from diracflow.sde.problem import checked_problem
from diracflow.sde.quasi_random import CUBES

SAMPLES = 77  # two devices do not divide it, nor does a chunk


def found(layout, ansatz, draws):
    """A velocity, and an iteration of an implicit stage, as plain arrays."""
    clock, theta = jnp.array(0.5), ansatz.theta
    points = place(ansatz, theta, clock, laid_out(draws, layout))
    own = layout.repeat(ansatz)
    still = jnp.zeros_like(theta)
    candidates = 0.1 * jr.normal(jr.key(3), (3, *theta.shape))
    explicit = velocity(own, theta, clock, points, jnp.array(1e-4), still, candidates)
    log_ratio, forcing, size = values_at(own, theta, clock, points)
    weight = jnp.array(0.05)
    left = system(linearise(own, theta, clock, points), weight)
    equation = (left, factor(left.normal, jnp.array(1e-4)))
    target = log_ratio + 0.02 * forcing
    step = iterate(own, theta, clock, points, equation, weight, target, theta)
    values = {
        "theta_dot": explicit.theta_dot,
        "gram": explicit.normal.gram,
        "moment": explicit.normal.moment,
        "residual": explicit.residual,
        "fresh": explicit.held_out_residuals,
        "forcing": explicit.forcing,
        "gap": explicit.source_gap,
        "implicit_gram": left.normal.gram,
        "theta": step.theta,
        "size": step.size,
        "rms": size,
        "projected": projected_size(equation, step.forcing),
    }
    rows = {"y": points.y, "x0": points.x0, "log_ratio": step.log_ratio, "next": step.forcing}
    pad = layout.padding(SAMPLES)
    # Rows that were added weigh nothing, and the others more.
    less = np.sqrt(SAMPLES / (SAMPLES + pad))
    scale = {"log_ratio": less, "next": less}
    values |= {n: np.asarray(v)[:SAMPLES] * scale.get(n, 1) for n, v in rows.items()}
    return {name: np.asarray(value) for name, value in values.items()}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    # Noise that depends on the state, so that every term counts.
    noise = lambda t, x: (0.7 + 0.2 * jnp.tanh(x))[:, None]
    sde, starts = df.SDE(lambda t, x: x - x**3, noise, 1), df.Normal(0.0, 1.0).expand(1)
    small = {"layers": 2, "hidden": 2, "bumps": 2, "source": "euler", "context": "path"}
    settings = settings_for("quick", **small, legs=1)
    ansatz = prepare(checked_problem(sde, starts, 1.0), settings, jr.key(5)).ansatz
    ansatz = ansatz.at(ansatz.theta + 0.1 * jr.normal(jr.key(1), ansatz.theta.shape))
    draws = draw(CUBES["sobol"], jr.key(2), starts, 1, SAMPLES, 0.7)
    two, tables = mesh_over(2), {}
    layouts = {"one": Layout(), "two": Layout(two), "two, chunks": Layout(two, 16)}
    for name, layout in layouts.items():
        tables |= {f"{name}/{k}": v for k, v in found(layout, ansatz, draws).items()}
        np.savez(sys.argv[1], **tables)
