"""Transition densities in NumPyro models."""

import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import pytest
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import seed, trace
from numpyro.infer import MCMC, NUTS

import diracflow as df
from diracflow.uses.numpyro import Inside, support_of

OU = df.ExactOrnsteinUhlenbeck()
PARAMS = {"rate": 0.8, "level": 0.3, "noise": 0.6}
X0 = np.array([[0.4], [0.1], [-0.3]])
DOMAINS = {
    "half line": (df.Positive(),),
    "square root": (df.Positive(0.5, 0.3),),
    "interval": (df.Interval(-1.0, 2.0),),
    "price and variance": (df.Real(), df.Positive()),
}


def law(x0=X0, rate=0.8):
    return df.numpyro.Transition(OU, 0.5, x0, PARAMS | {"rate": rate})


def test_density_and_samples_are_those_of_the_queries(getkey):
    x, key = jr.normal(getkey(), (3, 1)), getkey()
    np.testing.assert_allclose(law().log_prob(x), OU.log_prob(x, 0.5, X0, PARAMS), rtol=1e-14)
    draws = law().sample(key, (4,))
    assert draws.shape == (4, 3, 1)
    np.testing.assert_allclose(draws, OU.sample(key, 0.5, X0, (4,), PARAMS), rtol=1e-14)


def test_expand_jit_vmap_and_grad(getkey):
    x = jr.normal(getkey(), (3, 1))
    one = law(X0[0])
    assert one.expand((3,)).sample(getkey()).shape == (3, 1)
    expected = law().log_prob(x)
    # As an argument and a result of compiled functions, and mapped over by `vmap`.
    made = jax.jit(lambda rate: law(rate=rate))(0.8)
    np.testing.assert_allclose(jax.jit(lambda d: d.log_prob(x))(made), expected, rtol=1e-13)
    apart = jax.vmap(lambda d, x: d.log_prob(x))(law(), x)
    np.testing.assert_allclose(apart, expected, rtol=1e-13)
    slope = jax.grad(lambda rate: law(rate=rate).log_prob(x).sum())(0.8)
    asked = jax.grad(lambda r: OU.log_prob(x, 0.5, X0, PARAMS | {"rate": r}).sum())(0.8)
    np.testing.assert_allclose(slope, asked, rtol=1e-12)


def test_plates_hold_independent_paths(getkey):
    def model():
        with numpyro.plate("paths", 3):
            numpyro.sample("x", law())

    site = trace(seed(model, getkey())).get_trace()["x"]
    assert site["value"].shape == (3, 1)
    assert site["fn"].batch_shape == (3,)


def test_a_state_between_two_others_is_a_bridge(getkey):
    brownian = {"rate": 0.0, "level": 0.0, "noise": 1.0}

    def model():
        middle = numpyro.sample("middle", df.numpyro.Transition(OU, 0.5, [0.0], brownian))
        numpyro.sample("end", df.numpyro.Transition(OU, 0.5, middle, brownian), obs=jnp.ones(1))

    sampler = MCMC(NUTS(model), num_warmup=200, num_samples=1000, progress_bar=False)
    sampler.run(getkey())
    draws = np.asarray(sampler.get_samples()["middle"])
    # Mean 1/2 and variance 1/4. Five standard errors, with an effective sample size of a third.
    assert abs(draws.mean() - 0.5) < 5 * 0.5 / np.sqrt(333)
    assert abs(draws.std() - 0.5) < 5 * 0.5 / np.sqrt(2 * 333)


def test_a_missing_package_says_how_to_install_it(monkeypatch):
    from diracflow.uses.extras import extra

    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(ModuleNotFoundError, match=r"`numpyro`.*diracflow\[infer\]"):
        extra("numpyro")


def test_free_states_have_the_whole_space():
    law = df.numpyro.Transition(df.models.benes().exact, 0.5, [0.0, 0.0])
    assert law.support is constraints.real_vector


def test_constrained_states_have_their_domain():
    law = df.numpyro.Transition(df.models.cir().exact, 0.5, [[0.2], [0.3]])
    np.testing.assert_array_equal(law.support(jnp.array([[0.1], [-0.1]])), [True, False])
    assert law.support.event_dim == 1
    assert np.all(law.support(law.support.feasible_like(jnp.zeros((2, 1)))))
    assert law.expand((3, 2)).support(jnp.ones((3, 2, 1))).shape == (3, 2)


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_maps_into_a_domain_are_bijective_with_their_volume(domain, getkey):
    support = support_of(domain)
    inwards = biject_to(support)
    y = jr.normal(getkey(), (5, len(domain)))
    x = inwards(y)
    assert np.all(support(x))
    np.testing.assert_allclose(inwards.inv(x), y, rtol=1e-9, atol=1e-9)
    # Against autodiff, up to rounding.
    volumes = jax.vmap(lambda y: jnp.linalg.slogdet(jax.jacfwd(inwards)(y))[1])(y)
    np.testing.assert_allclose(inwards.log_abs_det_jacobian(y, x), volumes, rtol=1e-9, atol=1e-9)


def test_equal_domains_are_equal_constraints():
    assert Inside((df.Positive(),)) == Inside((df.Positive(),))
    assert Inside((df.Positive(),)) != Inside((df.Interval(0.0, 1.0),))
    again = jax.tree.unflatten(*reversed(jax.tree.flatten(Inside((df.Positive(),)))))
    assert again == Inside((df.Positive(),))


def test_moments_and_quantiles_are_those_of_the_law():
    found, frozen = law(), OU.at(0.5, X0, PARAMS)
    np.testing.assert_allclose(found.mean, frozen.mean(), rtol=1e-13)
    np.testing.assert_allclose(found.variance, frozen.var(), rtol=1e-13)
    np.testing.assert_allclose(found.icdf(0.3), frozen.ppf(0.3), rtol=1e-13)
    np.testing.assert_allclose(found.cdf(X0), frozen.cdf(X0), rtol=1e-13)
    np.testing.assert_allclose(found.entropy(), frozen.entropy(), rtol=1e-13)
