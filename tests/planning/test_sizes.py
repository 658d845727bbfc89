import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.planning.ansatz_builder import Axes, axes_of, build_flow, pair_size, parameter_count
from diracflow.planning.settings import settings_for
from diracflow.planning.size_rules import layers_rule, samples_rule
from helpers import prepared_for, problem_of, shaped_for

BUILT = {
    "one dimension": (1, {}),
    "plane": (2, {"hidden": 7, "bumps": 2}),
    "affine": (2, {"flow": "affine"}),
    "affine, one idle": (5, {"flow": "affine", "idle_dim": 1, "layers": 2}),
    "shared": (3, {"networks": "shared", "layers": 6, "hidden": 3}),
    "own": (3, {"networks": "own", "layers": 2}),
    "own, with the path": (2, {"networks": "own", "context": "path"}),
}


@pytest.mark.parametrize("dim, changes", BUILT.values(), ids=BUILT)
def test_the_plan_counts_the_parameters_of_the_ansatz(dim, changes):
    prepared = prepared_for(problem_of(df.models.brownian(dim)), source="euler", **changes)
    assert prepared.plan.parameters == len(prepared.ansatz.theta)


@pytest.mark.parametrize("networks", ["shared", "own"])
def test_what_varies_beside_the_start_counts(networks):
    family, sizes = df.models.ornstein_uhlenbeck_family(), {"layers": 2, "hidden": 3}
    problems = problem_of(family), problem_of(df.models.ornstein_uhlenbeck(1))
    varied, fixed = (
        prepared_for(problem, source="euler", networks=networks, **sizes) for problem in problems
    )
    assert varied.plan.parameters == len(varied.ansatz.theta) > fixed.plan.parameters


def parameters_with(dim, preset, **settings):
    """Return the number of parameters with the layers of the rule, and with two more."""
    problem = problem_of(df.models.brownian(dim))
    shaped = shaped_for(problem, preset, **settings)
    axes = axes_of(problem, shaped)
    both = shaped, shaped.replaced(layers=shaped.layers + 2)
    return [parameter_count(build_flow(problem, one, axes, jr.key(0))) for one in both]


@pytest.mark.parametrize("dim", [12, 16, 20])
def test_layers_end_where_parameters_are_too_many(dim):
    chosen, more = parameters_with(dim, "accurate", networks="shared")
    assert chosen <= 5500 < more


@pytest.mark.parametrize("dim", [6, 8, 10])
def test_layers_of_own_networks_end_earlier(dim):
    chosen, more = parameters_with(dim, "quick")
    assert chosen <= 2000 < more


def test_there_is_a_pair_of_layers_in_any_dimension():
    problem, settings = problem_of(df.models.brownian(50)), settings_for("accurate", networks="own")
    size = lambda: pair_size(problem, settings.replaced(hidden=5), Axes(None, np.zeros((50, 50))))
    assert layers_rule(problem, settings, size).value == 2


@pytest.mark.parametrize("parameters", [4097, 4720, 6144, 6145, 10**4])
def test_many_points_are_little_more_than_twice_the_parameters(parameters):
    samples = samples_rule(settings_for("accurate"), parameters).value
    assert 2 * parameters <= samples < 3 * parameters
