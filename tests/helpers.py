"""Catalogues over which properties are tested."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.density.abstract_learned import Provenance
from diracflow.planning.prepare import _Draft, _shaped, prepare
from diracflow.planning.settings import settings_for
from diracflow.sde.chart import chart_for, plain_chart
from diracflow.sde.conditioning import conditioning_laws
from diracflow.sde.laws import AbstractLaw
from diracflow.sde.problem import Problem
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


@eqx.filter_jit
def frame_of(source, tau, x0):
    """Return the frame of a source from one program; evaluated eagerly, it compiles many."""
    return source.frame(tau, x0)


def state_tables(state):
    """Return the values of the state of a training, with their types, comparable bit for bit."""
    coded = lambda value: (type(value), np.asarray(value).dtype, np.asarray(value).tobytes())
    return jax.tree.map(coded, dataclasses.asdict(state))


# Settings of the density that tests share. Trainings with the same find its programs compiled.
# Certificates compile for seconds; `tests/certify` does it.
TRAINED = {"preset": "quick", "hidden": 4, "tolerance": 1e-2, "certify": False}

# Settings that no rule need resolve; `"auto"` and `None` in their place let the rules choose.
SIMPLE = {"context": "start", "basis": "axes", "legs": 1}


def problem_for(sde, starts, horizon=1.0, params=None, start_time=0.0, chart=None):
    """Return a problem without the checks of `learn`, by default in the coordinates of the user."""
    varied = isinstance(start_time, AbstractLaw)
    laws = conditioning_laws(sde, starts, params, start_time if varied else None)
    began = None if varied else start_time
    return Problem(sde, laws, began, horizon, chart or plain_chart(sde))


def problem_of(model, horizon=None):
    """Return the problem of a built-in model, as `problem_for` does."""
    until = horizon or model.horizon
    return problem_for(model.sde, model.starts, until, model.params, model.start_time)


def prepared_for(problem, preset="quick", key=None, **settings):
    """Return plan and ansatz of a problem; networks get the start, along the axes of the state."""
    chosen = settings_for(preset, **SIMPLE | settings)
    return prepare(problem, chosen, jr.key(0) if key is None else key, preset=preset)


def ansatz_for(problem, preset="quick", key=None, **settings):
    """Return the ansatz alone."""
    return prepared_for(problem, preset, key, **settings).ansatz


def shaped_for(problem, preset="quick", **settings):
    """Return settings after the rules of time, axes and shape; neither flow nor source is built."""
    draft = _Draft(settings_for(preset, **SIMPLE | settings))
    _shaped(problem, draft)
    return draft.settings


def composed(base, lattice=False):
    """A density with the subintervals of its plan, over a lattice or by simulated points."""
    plan = base.provenance.plan
    if plan.legs == 1:
        return base
    starts = base.scope.law if lattice else None
    return df.ComposedDensity(base, plan.horizon, starts=starts)


def _small(problem, **settings):
    """Return plan and ansatz of a small flow, with sources compared on few simulated paths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diracflow.planning.pilot._STARTS", 8)
        patch.setattr("diracflow.planning.widening._PATHS", 512)
        return prepared_for(problem, **{"layers": 2, "hidden": 3} | settings)


def still_density(model, horizon=None, lattice=False, **settings):
    """A density whose flow has not moved, so that it is its source, which here is exact."""
    problem = problem_of(model, horizon)
    prepared = _small(problem, **settings)
    theta = np.asarray(prepared.ansatz.theta)
    none = np.zeros((0, len(theta)))
    trajectory = Trajectory(np.zeros(1), theta[None], none, none)
    provenance = Provenance(prepared.plan, df.Status.FINISHED, 0.0, (), {})
    density = df.TransitionDensity(prepared.ansatz, trajectory, problem.laws, provenance)
    return composed(density, lattice)


def stepped_density(model, steps=3, lattice=False, **settings):
    """A density whose flow has moved as if it had been trained, which takes no time."""
    problem, rng = problem_of(model, 0.5), np.random.default_rng(0)
    chart = chart_for(problem.sde, problem.laws.law, problem.start_time)
    problem = dataclasses.replace(problem, chart=chart)
    prepared = _small(problem, **settings)
    theta, reach = np.asarray(prepared.ansatz.theta), prepared.plan.reach
    clocks = np.sqrt(reach) * np.linspace(0, 1, steps + 1) ** 2
    walk = 0.1 * np.cumsum(rng.normal(size=(steps + 1, len(theta))), axis=0)
    velocities = rng.normal(size=(2, steps, len(theta)))
    path = Trajectory(clocks, theta + walk, *velocities)
    times = [*clocks[1:-1] ** 2, reach]
    history = tuple(dataclasses.replace(RECORD, time=float(time)) for time in times)
    finished = df.Status.FINISHED
    provenance = Provenance(prepared.plan, finished, 1.0, history, {"jax": "1"}, key=(0, 1))
    density = df.TransitionDensity(prepared.ansatz, path, problem.laws, provenance, chart)
    return composed(density, lattice)


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
