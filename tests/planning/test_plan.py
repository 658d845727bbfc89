"""Plans say what a training would do, completely and with reasons, before it begins."""

import dataclasses
import functools

import jax.random as jr
import pytest

import diracflow as df
from diracflow.planning.prepare import prepare
from diracflow.planning.settings import settings_for
from diracflow.sde.problem import checked_problem

MODELS = {
    "benes": df.models.benes(),
    "van der pol": df.models.van_der_pol(),
    "cir family": df.models.cir_family(),
    "langevin": df.models.langevin(),
}
AUTOMATIC = {
    "method",
    "context",
    "legs",
    "basis",
    "networks",
    "hidden",
    "layers",
    "samples",
    "source",
}
each_model = pytest.mark.parametrize("name", MODELS)


def arguments(name):
    model = MODELS[name]
    return model.sde, model.starts, model.horizon, model.params, model.start_time


@pytest.fixture(autouse=True)
def _few_paths(few_paths):
    """How many paths measure a distance does not matter here."""


@functools.cache
def planned(name):
    *problem, params, start_time = arguments(name)
    return df.plan(*problem, params=params, start_time=start_time, preset="quick")


@each_model
def test_nothing_is_left_open(name):
    plan = planned(name)
    values = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    assert [key for key, value in values.items() if value is None or value == "auto"] == []
    assert plan.reach == plan.horizon / plan.legs
    assert plan.horizon == MODELS[name].horizon


@each_model
def test_every_automatic_choice_has_a_reason(name):
    reasons = planned(name).reasons
    assert set(reasons) == AUTOMATIC
    assert all(reason.strip() for reason in reasons.values())


@each_model
def test_a_plan_shows_its_choices_with_their_reasons(name):
    plan = planned(name)
    lines = {line.split()[0]: line for line in str(plan).splitlines() if line.startswith("  ")}
    assert lines["source"].split()[1] == plan.source
    assert int(lines["parameters"].split()[1]) == plan.parameters
    for choice in AUTOMATIC:
        assert str(getattr(plan, choice)) in lines[choice]
        assert plan.reasons[choice] in lines[choice]


@pytest.mark.parametrize("name", ["benes", "van der pol"])  # one and several subintervals
def test_a_training_does_what_was_planned(name):
    # Plans do not depend on the key, which only draws weights and points.
    prepared = prepare(
        checked_problem(*arguments(name)), settings_for("quick"), jr.key(7), preset="quick"
    )
    assert prepared.plan.describe() == planned(name).describe()
    assert len(prepared.ansatz.theta) == prepared.plan.parameters
    assert prepared.problem.horizon == prepared.plan.reach
    assert prepared.settings.samples == prepared.plan.samples


def test_choices_fit_their_problem():
    cycle = planned("van der pol")
    assert cycle.legs > 1
    assert cycle.context == "path"
    assert "radians" in cycle.reasons["context"]
    assert "radians" in cycle.reasons["legs"]
    gradient, degenerate = planned("benes"), planned("langevin")
    assert (gradient.context, gradient.legs) == ("start", 1)
    assert (degenerate.source, degenerate.context) == ("moments", "start")


def test_what_the_user_sets_needs_no_reason():
    given = {"context": "start", "legs": 1, "basis": "axes", "networks": "shared", "hidden": 3}
    given |= {"layers": 2, "samples": 64, "source": "euler", "method": "galerkin"}
    model = df.models.brownian(2)
    plan = df.plan(model.sde, model.starts, 1.0, **given)
    assert {name: getattr(plan, name) for name in given} == given
    assert plan.reasons == {}
    partly = df.plan(model.sde, model.starts, 1.0, **given | {"layers": None})
    assert set(partly.reasons) == {"layers"}


SMALL = {"source": "euler", "layers": 2, "hidden": 2}
LARGE = SMALL | {"samples": 2**24, "memory_limit": 2.0}
REFUSED = {
    "unknown setting": (df.models.benes(), {"tolerence": 1e-3}, "Unknown setting 'tolerence'"),
    "degenerate noise": (df.models.langevin(), {"source": "closure"}, 'Use `source="moments"`'),
    "memory": (df.models.brownian(1), LARGE, "`memory_limit` allows 2 GB"),
}


@pytest.mark.parametrize("model, options, message", REFUSED.values(), ids=REFUSED)
def test_plans_refuse_what_trainings_refuse(model, options, message):
    problem = model.sde, model.starts, 1.0
    with pytest.raises(ValueError, match=message):
        df.plan(*problem, **options)
    with pytest.raises(ValueError, match=message):
        df.learn(*problem, key=jr.key(0), **options)
