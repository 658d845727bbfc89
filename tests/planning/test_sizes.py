import dataclasses

import jax.random as jr
import pytest

import diracflow as df
from diracflow.planning.build_ansatz import build_ansatz
from diracflow.planning.settings import settings_for
from diracflow.planning.sizes import parameter_count, sampled, sized


@pytest.mark.parametrize("flow", ["monotone", "affine"])
@pytest.mark.parametrize(
    "dim, changes", [(1, {}), (2, {}), (3, {"layers": 6}), (5, {"idle_dim": 1})]
)
@pytest.mark.parametrize("sizes", [{}, {"hidden": 7, "bumps": 2}])
def test_parameters_are_counted_without_being_made(flow, dim, changes, sizes):
    if flow == "affine" and dim == 1:
        pytest.skip("a coupling in one dimension must be monotone")
    settings = sized(settings_for("quick", flow=flow, source="euler", **changes), dim)
    law = df.Normal(0.0, 1.0).expand(dim)
    ansatz = build_ansatz(df.models.brownian(dim).sde, law, 0.0, 1.0, settings, jr.key(0))
    assert parameter_count(dim, dim, settings) == len(ansatz.theta)


def test_what_varies_beside_the_start_counts():
    family = df.models.ornstein_uhlenbeck_family()
    law = df.Product(family.starts, *family.params.values())
    settings = sized(settings_for("quick", source="euler"), 1, 4)
    ansatz = build_ansatz(family.sde, law, 0.0, 1.0, settings, jr.key(0))
    assert parameter_count(1, 4, settings) == len(ansatz.theta)


@pytest.mark.parametrize("dim", [12, 16, 20])
def test_layers_end_where_parameters_are_too_many(dim):
    settings = sized(settings_for("accurate", networks="shared"), dim)
    more = dataclasses.replace(settings, layers=settings.layers + 2)
    assert parameter_count(dim, dim, settings) <= 5500 < parameter_count(dim, dim, more)


@pytest.mark.parametrize("dim", [6, 8, 10])
def test_layers_of_own_networks_end_earlier(dim):
    settings = sized(settings_for("quick"), dim)
    more = dataclasses.replace(settings, layers=settings.layers + 2)
    assert parameter_count(dim, dim, settings) <= 2000 < parameter_count(dim, dim, more)


def test_there_is_a_pair_of_layers_in_any_dimension():
    assert sized(settings_for("accurate"), 50).layers == 2


@pytest.mark.parametrize("parameters", [4097, 4720, 6144, 6145, 10**4])
def test_many_points_are_little_more_than_twice_the_parameters(parameters):
    samples = sampled(settings_for("accurate"), parameters).samples
    assert 2 * parameters <= samples < 3 * parameters
