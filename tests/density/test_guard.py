"""Starts outside the start law do not pass unnoticed."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.density import guard

INSIDE, FAR = np.array([0.4, -0.3]), np.array([5.0, 5.0])


@pytest.fixture
def fresh(trained):
    """A density that has not warned yet."""
    return trained.with_provenance()


def queries(density, x0, **options):
    x = np.zeros(2)
    yield lambda: density.log_prob(x, 0.1, x0, **options)
    yield lambda: density.prob(x, 0.1, x0, **options)
    yield lambda: density.score(x, 0.1, x0, **options)
    yield lambda: density.start_score(x, 0.1, x0, **options)
    yield lambda: density.sample(jr.key(0), 0.1, x0, **options)
    yield lambda: density.at(0.1, x0, **options)


def test_one_warning_with_the_numbers(fresh, recwarn):
    for query in queries(fresh, np.stack([INSIDE, FAR])):
        query()
    found = [w for w in recwarn if w.category is df.OutsideWarning]
    assert len(found) == 1
    assert "1 of 2 starts" in str(found[0].message)
    assert "[5.0, 5.0]" in str(found[0].message)


def test_strict_queries_raise_each_time(fresh):
    for query in [*queries(fresh, FAR, strict=True)] * 2:
        with pytest.raises(ValueError, match="1 of 1 starts lie outside"):
            query()


def test_nothing_is_said_inside(fresh, recwarn):
    for query in queries(fresh, INSIDE, strict=True):
        query()
    assert not [w for w in recwarn if w.category is df.OutsideWarning]


def test_a_flag_under_jit(trained):
    outside = jax.jit(trained.outside)(jnp.stack([INSIDE, FAR]))
    assert outside.tolist() == [False, True]


def test_exact_densities_hold_everywhere(benes):
    assert np.isfinite(benes.exact.log_prob(np.zeros(2), 0.1, FAR, strict=True))


@pytest.mark.slow
def test_draws_of_the_law_itself_are_no_news(fresh, recwarn):
    # A few of ten thousand are outside; that is what the law is like.
    x0 = fresh.starts.sample(jr.key(1), (10_000,))
    assert 0 < np.sum(fresh.outside(x0)) < 10
    fresh.log_prob(np.zeros(2), 0.1, x0)
    assert not [w for w in recwarn if w.category is df.OutsideWarning]
    with pytest.warns(df.OutsideWarning, match="of 10001"):
        fresh.log_prob(np.zeros(2), 0.1, np.concatenate([x0, FAR[None]]))


@pytest.mark.slow
def test_uses_report_the_share_outside(fresh, getkey):
    with pytest.warns(df.OutsideWarning, match="1 of 4"):
        law = df.propagate(fresh, np.stack([INSIDE, INSIDE, INSIDE, FAR]), 0.1)
    assert law.outside == 0.25
    assert df.propagate(fresh, df.Normal(10.0, 0.1), 0.1).outside == 1.0
    assert df.propagate(fresh, fresh.starts, 0.1).outside < 1e-3
    found = df.bridge(getkey(), fresh, INSIDE, INSIDE, 0.2, 4, 8)
    assert found.outside == 0.0
    observe = lambda x, y: -0.5 * jnp.sum((x - y) ** 2)
    initial = np.stack([INSIDE, FAR])
    found = df.filter(getkey(), fresh, [0.1], [INSIDE], observe, 100, initial=initial)
    assert 0.3 < found.outside[0] < 0.7


@pytest.fixture
def single_precision(monkeypatch):
    """JAX's default, which tests change, and no warning given yet."""
    monkeypatch.setattr(guard, "_told", False)
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


def test_queries_in_float32_say_so_once(trained, single_precision, recwarn):
    told = lambda: [w for w in recwarn if w.category is df.PrecisionWarning]
    query = np.zeros(2), 0.1, np.zeros(2)
    with jax.enable_x64(True):
        trained.log_prob(*query)
    assert not told()
    for _ in range(2):
        assert trained.log_prob(*query).dtype == np.float32
    trained.at(0.1, np.zeros(2))
    [warning] = told()
    assert 'jax.config.update("jax_enable_x64", True)' in str(warning.message)
    assert warning.filename == __file__


def test_float32_that_is_chosen_causes_no_warning(trained, monkeypatch, recwarn):
    monkeypatch.setattr(guard, "_told", False)
    with jax.enable_x64(False):
        assert trained.log_prob(np.zeros(2), 0.1, np.zeros(2)).dtype == np.float32
    assert not [w for w in recwarn if w.category is df.PrecisionWarning]
