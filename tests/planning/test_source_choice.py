import jax.numpy as jnp
import jax.random as jr
import pytest

import diracflow as df
from diracflow.planning.build_ansatz import build_ansatz, source_name, source_reason
from diracflow.planning.settings import settings_for
from diracflow.planning.sizes import sized

STRAIGHT = df.SDE(lambda t, x: jnp.ones(2), lambda t, x: jnp.eye(2), 2)
CHOICES = {
    "moments": (df.models.langevin().sde, "noise does not enter every component"),
    "closure": (df.models.van_der_pol().sde, "0.1 or more"),
    "euler": (STRAIGHT, "less than 0.1"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_rule_takes_the_source_that_fits_and_says_why(name):
    sde, why = CHOICES[name]
    settings = sized(settings_for("quick"), 2)
    starts = df.Normal(0.0, 1.0).expand(2)
    source = build_ansatz(sde, starts, 0.0, 1.0, settings, jr.key(0)).source
    assert source_name(source) == name
    degenerate = name == "moments"
    assert why in source_reason("auto", source, degenerate)
    assert source_reason(name, source, degenerate) == "asked for"


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
    with pytest.raises(ValueError, match="Add a little noise to a component"):
        df.learn(sde, df.Normal(0.0, 1.0), 1.0, key=jr.key(0))
