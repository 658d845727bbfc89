"""The query surface common to all densities, on exact ones."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from helpers import still_density

EXACT = df.models.benes().exact
X0 = np.array([0.5, -0.2])


def test_score_is_the_gradient(getkey):
    x = jax.random.normal(getkey(), (6, 2))
    expected = jax.vmap(jax.grad(lambda x: EXACT.log_prob(x, 0.4, X0)))(x)
    np.testing.assert_allclose(EXACT.score(x, 0.4, X0), expected, rtol=1e-12)


def test_start_score_is_the_gradient_in_the_start(getkey):
    x0 = jax.random.normal(getkey(), (6, 2))
    expected = jax.vmap(jax.grad(lambda x0: EXACT.log_prob(jnp.ones(2), 0.4, x0)))(x0)
    np.testing.assert_allclose(EXACT.start_score(np.ones(2), 0.4, x0), expected, rtol=1e-12)


def test_queries_broadcast_and_drop_the_state_axis():
    x, t = np.zeros((7, 1, 2)), np.array([0.1, 0.2, 0.3])
    assert EXACT.log_prob(x, t, X0).shape == (7, 3)
    assert EXACT.prob(x, t, X0).shape == (7, 3)
    assert EXACT.score(x, t, X0).shape == (7, 3, 2)


def test_samples_have_shape_then_batch_then_state(getkey):
    draws = EXACT.sample(getkey(), np.array([0.1, 0.2, 0.3]), np.zeros((5, 1, 2)), (4,))
    assert draws.shape == (4, 5, 3, 2)


def test_jit_vmap_and_grad_agree_with_eager_queries(getkey):
    x = jax.random.normal(getkey(), (4, 2))
    eager = EXACT.log_prob(x, 0.4, X0)
    np.testing.assert_allclose(jax.jit(EXACT.log_prob)(x, 0.4, X0), eager, rtol=1e-12)
    one = jax.vmap(EXACT.log_prob, (0, None, None))(x, jnp.array(0.4), jnp.asarray(X0))
    np.testing.assert_allclose(one, eager, rtol=1e-12)
    step = 1e-5
    slope = jax.grad(EXACT.log_prob, argnums=1)(x[0], 0.4, X0)
    difference = EXACT.log_prob(x[0], 0.4 + step, X0) - EXACT.log_prob(x[0], 0.4 - step, X0)
    # Central differences: an error of order step**2 with a third derivative of order 1e2.
    np.testing.assert_allclose(slope, difference / (2 * step), rtol=1e-6)


def test_frozen_view_speaks_scipy():
    law = EXACT.at(0.4, X0)
    x = np.array([[0.1, 0.2], [1.0, 1.0]])
    np.testing.assert_allclose(law.pdf(x), np.exp(law.logpdf(x)))
    draws = law.rvs(10, random_state=3)
    assert isinstance(draws, np.ndarray)
    assert draws.shape == (10, 2)
    np.testing.assert_array_equal(draws, law.rvs(10, random_state=3))
    assert law.rvs().shape == (2,)
    assert law.rvs(np.int64(3)).shape == (3, 2)


def test_integers_and_lists_are_numbers():
    np.testing.assert_allclose(
        EXACT.log_prob([1, 0], 1, [0, 0]), EXACT.log_prob([1.0, 0.0], 1.0, [0.0, 0.0])
    )


BAD_QUERIES = {
    "t zero": (np.zeros(2), 0.0, X0, "point mass"),
    "t negative": (np.zeros(2), -1.0, X0, r"got -1"),
    "t nan": (np.zeros(2), np.nan, X0, "got nan"),
    "one bad t": (np.zeros(2), np.array([0.1, -0.5]), X0, "got -0.5"),
    "x length": (np.zeros(3), 0.1, X0, r"`x`.*length 2.*\(3,\)"),
    "x scalar": (0.0, 0.1, X0, "`x`"),
    "x0 length": (np.zeros(2), 0.1, np.zeros(5), r"`x0`.*length 2.*\(5,\)"),
    "x nan": (np.array([np.nan, 0.0]), 0.1, X0, "`x` contains NaN"),
    "x0 nan": (np.zeros(2), 0.1, np.array([np.nan, 0.0]), "`x0` contains NaN"),
    "x0 infinite": (np.zeros(2), 0.1, np.array([np.inf, 0.0]), "`x0` must be finite"),
    "strings": (["a", "b"], 0.1, X0, "real numbers"),
    "complex": (np.zeros(2) * 1j, 0.1, X0, "real numbers"),
    "shapes": (np.zeros((3, 2)), np.array([0.1, 0.2]), X0, "broadcast|shape"),
}


@pytest.mark.parametrize("x, t, x0, message", BAD_QUERIES.values(), ids=BAD_QUERIES)
def test_bad_queries_are_refused(x, t, x0, message):
    with pytest.raises(ValueError, match=message):
        EXACT.log_prob(x, t, x0)


def test_bad_shapes_are_refused(getkey):
    for shape in (-1, (2.5,), "many"):
        with pytest.raises(ValueError, match="`shape`"):
            EXACT.sample(getkey(), 0.1, X0, shape)
    assert EXACT.sample(getkey(), 0.1, X0, 5).shape == (5, 2)


def test_a_bad_time_is_noticed_under_jit():
    with pytest.raises(Exception, match="must lie in"):
        jax.block_until_ready(jax.jit(EXACT.log_prob)(jnp.zeros(2), -1.0, jnp.zeros(2)))


def test_known_times_may_be_arrays_within_jit():
    t, x = jnp.array(0.4), jnp.zeros(2)
    run = jax.jit(lambda x: EXACT.log_prob(x, t, X0))
    np.testing.assert_allclose(run(x), EXACT.log_prob(x, 0.4, X0), rtol=1e-12)


def test_one_dimensional_states_need_their_axis():
    exact = df.models.ornstein_uhlenbeck(1).exact
    with pytest.raises(ValueError, match=r"x\[\.\.\., None\]"):
        exact.log_prob(np.linspace(0, 1, 5), 0.1, np.zeros(1))


def test_seeds_are_keys():
    draws = EXACT.sample(3, 0.1, X0, 5)
    np.testing.assert_array_equal(draws, EXACT.sample(jax.random.key(3), 0.1, X0, 5))


def test_a_query_passes_through_few_functions():
    density, x = still_density(df.models.brownian(2), source="euler"), np.zeros(2)
    density.log_prob(x, 0.1, x)
    called = []

    def record(frame, event, _):
        if event == "call" and "diracflow" in frame.f_code.co_filename:
            called.append(frame.f_code)

    sys.setprofile(record)
    try:
        density.log_prob(x, 0.1, x)
    finally:
        sys.setprofile(None)
    names = [code.co_name for code in called if not code.co_name.startswith("<")]
    assert len(set(names)) <= 12, names


OU = df.ExactOrnsteinUhlenbeck()
PARAMS = {"rate": 0.8, "level": 0.3, "noise": 0.6}


def test_scalars_in_are_scalars_out():
    x, state = np.array([0.1, 0.4, 0.9]), {"params": PARAMS}
    vector = OU.log_prob(x[:, None], 0.5, [0.2], **state)
    np.testing.assert_array_equal(OU.log_prob(x, 0.5, 0.2, **state), vector)
    assert OU.log_prob(0.1, 0.5, 0.2, **state).shape == ()
    assert OU.score(x, 0.5, 0.2, **state).shape == (3,)
    assert OU.start_score(0.1, 0.5, 0.2, **state).shape == ()
    assert OU.sample(0, [0.5, 0.7], 0.2, 4, **state).shape == (4, 2)
    np.testing.assert_array_equal(
        OU.sample(0, 0.5, 0.2, 4, **state), OU.sample(0, 0.5, [0.2], 4, **state)[:, 0]
    )
    law, other = OU.at(0.5, 0.2, PARAMS), OU.at(0.5, [0.2], PARAMS)
    assert law.mean().shape == law.std().shape == law.ppf(0.3).shape == law.x0.shape == ()
    assert law.rvs(5, random_state=0).shape == (5,)
    assert law.cdf(x).shape == law.pdf(x).shape == (3,)
    np.testing.assert_array_equal(law.cdf(x), other.cdf(x[:, None]))
    np.testing.assert_allclose(law.expect(lambda x: x**2).value, other.moment(2)[0], rtol=1e-13)
    slope = jax.grad(lambda x0: OU.at(0.5, x0, PARAMS).mean())(0.2)
    np.testing.assert_allclose(slope, np.exp(-0.8 * 0.5), rtol=1e-12)
    assert not OU.outside(0.2, PARAMS)
    learned = still_density(df.models.ornstein_uhlenbeck(1))
    assert learned.coverage(0.2).shape == ()


def test_arrays_of_states_keep_their_axis():
    with pytest.raises(ValueError, match="x\\[..., None\\]"):
        OU.log_prob([0.1, 0.2], 0.5, [0.2], PARAMS)
    assert OU.log_prob([0.1], 0.5, [0.2], PARAMS).shape == ()
