"""The law of starts is widened to where later subintervals begin."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.planning.prepare import prepare
from diracflow.planning.settings import settings_for
from diracflow.planning.widening import stays, widened
from diracflow.sde.conditioning import OUTSIDE
from diracflow.sde.heun import heun_paths
from diracflow.sde.problem import checked_problem
from helpers import problem_for


def cycle(t, x):
    return jnp.stack([x[1], (1 - x[0] ** 2) * x[1] - x[0]])


def growth(t, x):
    return x * (2.0 - x)


PROBLEMS = {
    # Paths end on the cycle, at radii of two and more, or near the wells at one and minus one.
    "cycle": (df.SDE(cycle, 0.5 * jnp.ones(2), 2), df.Normal([0.0, 0.0], 0.2), 5.0),
    "well": (df.SDE(lambda t, x: x - x**3, 0.7), df.Normal(0.0, 0.1), 2.0),
    "growth": (
        df.SDE(growth, lambda t, x: 0.3 * jnp.sqrt(x), 1, domain=df.Positive()),
        df.LogNormal(-1.5, 0.1),
        2.0,
    ),
}
pytestmark = pytest.mark.usefixtures("few_paths")
each_problem = pytest.mark.parametrize("case", PROBLEMS.values(), ids=PROBLEMS)


@each_problem
def test_a_widened_law_covers_starts_and_later_beginnings(case, getkey):
    problem = checked_problem(*case, None, 0.0)
    assert not stays(problem, 4)
    wide = widened(problem, 4)
    outside = lambda states: np.mean(np.asarray(wide.laws.outside(states, OUTSIDE)))
    starts = problem.law.sample(getkey(), (1024,))
    # The law that was given is part of the wider one.
    assert outside(problem.states(starts)) <= 1e-3
    # One in a hundred beginnings may lie outside. Of those of 512 paths this share has a standard
    # error of 0.0044, if all four of a path lie outside together.
    times = jnp.array([0.3, 0.6, 0.75]) * problem.horizon
    begins = heun_paths(problem.equation, 0.0, getkey(), starts, times, 64)
    assert outside(problem.states(begins.reshape(-1, problem.dim))) <= 0.02
    assert wide.horizon == problem.horizon


def test_laws_that_paths_do_not_leave_are_kept():
    model = df.models.double_well()
    assert stays(problem_for(model.sde, model.starts, 5.0), 8)


def test_the_plan_says_that_the_law_was_widened():
    sde, _, horizon = PROBLEMS["cycle"]
    narrow, wide = (
        df.plan(sde, df.Normal([0.0, 0.0], width), horizon, preset="quick") for width in (0.2, 1.0)
    )
    assert (narrow.starts, wide.starts) == ("widened", "given")
    assert narrow.legs > 1
    assert "paths leave the law given" in str(narrow)


def test_queries_from_later_beginnings_are_inside():
    sde, starts, horizon = PROBLEMS["well"]
    settings = settings_for("quick", legs=4)
    prepared = prepare(checked_problem(sde, starts, horizon, None, 0.0), settings, jr.key(0))
    laws = prepared.problem.laws
    assert not np.any(np.asarray(laws.outside(np.array([[-1.0], [1.0]]), OUTSIDE)))
