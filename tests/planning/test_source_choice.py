import jax.numpy as jnp
import jax.random as jr
import pytest

import diracflow as df
from helpers import prepared_for, problem_for

STRAIGHT = df.SDE(lambda t, x: jnp.ones(2), lambda t, x: jnp.eye(2), 2)
CHOICES = {
    "moments": (df.models.langevin().sde, "noise does not enter every component"),
    "closure": (df.models.van_der_pol().sde, "0.1 or more"),
    "euler": (STRAIGHT, "less than 0.1"),
}

KINDS = {"moments": df.MomentSource, "closure": df.ClosureSource, "euler": df.EulerSource}


@pytest.mark.parametrize("name", CHOICES)
def test_the_rule_takes_the_source_that_fits_and_says_why(name):
    sde, why = CHOICES[name]
    problem = problem_for(sde, df.Normal(0.0, 1.0))
    prepared = prepared_for(problem)
    assert prepared.plan.source == name
    assert type(prepared.ansatz.source) is KINDS[name]
    assert why in prepared.plan.reasons["source"]
    asked = prepared_for(problem, source=name)
    assert type(asked.ansatz.source) is KINDS[name]
    assert "source" not in asked.plan.reasons


REFUSED = {
    "closure": ({"source": "closure"}, 'source="moments"'),
    "the paper's flow": ({"preset": "paper"}, '"accurate" or "quick"'),
}


@pytest.mark.parametrize("settings, message", REFUSED.values(), ids=REFUSED)
def test_sources_without_a_density_are_refused(settings, message):
    model = df.models.langevin()
    with pytest.raises(ValueError, match=message):
        df.learn(model.sde, model.starts, 1.0, key=jr.key(0), **settings)


def test_noise_that_cannot_reach_a_component_is_refused():
    sde = df.SDE(lambda t, x: -x, lambda t, x: jnp.array([[0.0], [1.0]]), 2)
    with pytest.raises(ValueError, match="Add a little noise to the components"):
        df.learn(sde, df.Normal(0.0, 1.0), 1.0, key=jr.key(0))
