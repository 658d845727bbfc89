"""Catalogues over which properties are tested."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from diracflow.planning.build_ansatz import build_ansatz, source_name
from diracflow.planning.sizes import sized

import diracflow as df
from diracflow.density.learned import Facts
from diracflow.planning.settings import settings_for
from diracflow.planning.subinterval_rule import leg_length
from diracflow.sde.chart import chart_for
from diracflow.sde.conditioning import conditioning_laws
from diracflow.sde.laws import AbstractLaw
from diracflow.training.state import Record, Trajectory

_RNG = np.random.default_rng(3)

# Every model whose density is known, with the order in tau of its Euler source's log-density error.
EXACT_MODELS = {
    "brownian": (df.models.brownian(3), None),
    "ou-1d": (df.models.ornstein_uhlenbeck(1, rate=0.8, level=0.3, noise=0.6), 1.0),
    "ou-full": (
        df.models.ornstein_uhlenbeck(
            3,
            rate=np.eye(3) + 0.3 * _RNG.normal(size=(3, 3)),
            level=[0.2, -0.1, 0.4],
            noise=np.eye(3) + 0.2 * _RNG.normal(size=(3, 3)),
        ),
        1.0,
    ),
    "benes": (df.models.benes(), 1.0),
    "benes-3d": (df.models.benes(dim=3), 1.0),
    "sheared": (df.models.sheared(4), 0.5),
}

# A step of a training in which all is well.
RECORD = Record(
    time=0.25,
    length=0.1,
    error=1e-4,
    residual=1e-4,
    fresh_residual=2e-4,
    regularisation=1e-6,
    rank=120.3,
    condition=1e6,
    forcing=0.5,
    source_gap=0.3,
    bound=2e-3,
    rejected=2,
    seconds=10.0,
)


def still_density(model, horizon=None, **settings):
    """A density whose flow has not moved, so that it is its source, which here is exact."""
    varied = isinstance(model.start_time, AbstractLaw)
    laws = conditioning_laws(
        model.sde, model.starts, model.params, model.start_time if varied else None
    )
    small = {"layers": 2, "hidden": 3, "legs": 1}
    chosen = sized(settings_for("quick", **small | settings), model.sde.dim)
    began, end = None if varied else model.start_time, horizon or model.horizon
    reach = leg_length(end, chosen)
    ansatz = build_ansatz(model.sde, laws.law, began, reach, chosen, jr.key(0))
    chosen = dataclasses.replace(chosen, source=source_name(ansatz.source))
    none = np.zeros((0, len(ansatz.theta)))
    trajectory = Trajectory(np.zeros(1), np.asarray(ansatz.theta)[None], none, none)
    facts = Facts(chosen, "quick", end, df.Status.FINISHED, 0.0, (), {})
    return df.TransitionDensity(ansatz, trajectory, laws, facts)


def stepped_density(model, steps=3, **settings):
    """A density whose flow has moved as if it had been trained, which takes no time."""
    varied, end = isinstance(model.start_time, AbstractLaw), 0.5
    laws = conditioning_laws(
        model.sde, model.starts, model.params, model.start_time if varied else None
    )
    began, rng = None if varied else model.start_time, np.random.default_rng(0)
    small = {"layers": 2, "hidden": 3, "context": "start", "legs": 1}
    chosen = sized(settings_for("quick", **small | settings), model.sde.dim)
    chart = chart_for(model.sde, laws.law, began)
    reach = leg_length(end, chosen)
    problem = chart.equation(), chart.law(laws.law), began, reach
    ansatz = build_ansatz(*problem, chosen, jr.key(0))
    chosen = dataclasses.replace(chosen, source=source_name(ansatz.source))
    clocks = np.sqrt(reach) * np.linspace(0, 1, steps + 1) ** 2
    walk = 0.1 * np.cumsum(rng.normal(size=(steps + 1, len(ansatz.theta))), axis=0)
    velocities = rng.normal(size=(2, steps, len(ansatz.theta)))
    path = Trajectory(clocks, np.asarray(ansatz.theta) + walk, *velocities)
    times = [*clocks[1:-1] ** 2, reach]
    history = tuple(dataclasses.replace(RECORD, time=float(time)) for time in times)
    facts = Facts(chosen, "quick", end, df.Status.FINISHED, 1.0, history, {"jax": "1"}, key=(0, 1))
    return df.TransitionDensity(ansatz, path, laws, facts, chart)


def require_derivatives(density, x, t, x0):
    """That derivatives of the log-density are those of its values, in all arguments."""
    slopes = jax.grad(density.log_prob, (0, 1, 2))(x, t, x0)
    h = 1e-5
    for index, slope in enumerate(slopes):
        up, down = ([x, t, x0] for _ in range(2))
        up[index], down[index] = up[index] + h, down[index] - h
        difference = (density.log_prob(*up) - density.log_prob(*down)) / (2 * h)
        # Second-order differences: 1e-10 and rounding of 1e-16 / 1e-5.
        np.testing.assert_allclose(jnp.ravel(slope), difference, rtol=1e-6, atol=1e-8)
    return slopes
