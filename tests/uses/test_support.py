"""NumPyro knows where constrained states live."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df

pytest.importorskip("numpyro")

from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from diracflow.uses.numpyro import Inside, support_of

DOMAINS = {
    "half line": (df.Positive(),),
    "square root": (df.Positive(0.5, 0.3),),
    "interval": (df.Interval(-1.0, 2.0),),
    "price and variance": (df.Real(), df.Positive()),
}


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
    # Against autodiff: both are rounded alike.
    volumes = jax.vmap(lambda y: jnp.linalg.slogdet(jax.jacfwd(inwards)(y))[1])(y)
    np.testing.assert_allclose(inwards.log_abs_det_jacobian(y, x), volumes, rtol=1e-9, atol=1e-9)


def test_equal_domains_are_equal_constraints():
    assert Inside((df.Positive(),)) == Inside((df.Positive(),))
    assert Inside((df.Positive(),)) != Inside((df.Interval(0.0, 1.0),))
    again = jax.tree.unflatten(*reversed(jax.tree.flatten(Inside((df.Positive(),)))))
    assert again == Inside((df.Positive(),))
