"""Families of positive states: their members are the models without parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.sde.conditioning import conditioning_laws

# Family, the model with these parameters fixed, and values inside the box.
PAIRS = {
    "cir": (df.models.cir_family, df.models.cir, {"rate": 2.0, "level": 0.3, "noise": 0.2}),
    "gbm": (
        *(df.models.geometric_brownian_family, df.models.geometric_brownian),
        {"rate": 0.1, "noise": 0.3},
    ),
}
each_pair = pytest.mark.parametrize("family, member, params", PAIRS.values(), ids=PAIRS)


@each_pair
def test_members_are_the_models_without_parameters(family, member, params):
    one, alone, x = family().sde.at(params), member(**params).sde, jnp.array([0.4])
    np.testing.assert_allclose(one.drift(0.0, x), alone.drift(0.0, x), rtol=1e-15)
    np.testing.assert_allclose(one.diffusion(0.0, x), alone.diffusion(0.0, x), rtol=1e-15)
    assert one.domain == alone.domain


@each_pair
def test_exact_density_solves_the_equation_of_a_member(family, member, params):
    model = family()
    x0, values = jnp.split(model_draws(model)[0], [1])
    params = dict(zip(model.sde.params, values, strict=True))
    q = lambda x, t: model.exact.log_prob(x, t, x0, params)
    x, t = 1.1 * x0, jnp.array(0.2)
    rate = df.log_density_rate(model.sde.at(params), lambda x: q(x, t), t, x)
    # Exact derivatives on both sides; second derivatives multiply the Bessel function's error of
    # 4e-12 by the square of its argument, some hundreds.
    np.testing.assert_allclose(rate, jax.grad(q, argnums=1)(x, t), rtol=1e-6, atol=1e-6)


@each_pair
def test_laws_are_in_the_order_of_the_equation_and_inside_the_domain(family, member, params):
    model, draws = family(), model_draws(family())
    assert tuple(model.params) == model.sde.params == model.exact.params
    assert np.all(draws[:, 0] > 0)
    for name, column in zip(model.sde.params, draws[:, 1:].T, strict=True):
        law = model.params[name]
        assert law.low <= column.min() <= column.max() <= law.high


def test_zero_is_not_reached_anywhere_in_the_box_of_cir():
    box = df.models.cir_family().params
    index = 2 * box["rate"].low * box["level"].low / box["noise"].high ** 2
    assert index > 1


@each_pair
def test_models_are_found_by_name(family, member, params):
    name, arguments = family().sde.origin
    assert df.models.model(name).sde.origin == (name, arguments)


def model_draws(model):
    laws = conditioning_laws(model.sde, model.starts, model.params, None)
    return laws.law.sample(jax.random.key(0), (64,))
