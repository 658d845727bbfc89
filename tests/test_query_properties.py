"""Queries obey NumPy's rules, whatever arrays they are given.

Queries are compiled for each shape, so shapes come from a short list; values come from anywhere.
"""

import itertools
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import diracflow as df
from diracflow.transition import batching
from helpers import still_density

EXACT = df.models.benes().exact
LOG_PROB, SCORE = jax.jit(EXACT.log_prob), jax.jit(EXACT.score)
FAMILY = df.ExactOrnsteinUhlenbeck()
SHAPES = ((), (3,), (2, 1), (0,))
shapes = st.sampled_from(SHAPES)
numbers = st.floats(-4, 4)
times = st.floats(0.01, 3)
some = settings(deadline=None, derandomize=True, database=None, max_examples=12)


@st.composite
def arrays(draw, shape, of=numbers):
    """An array of a shape; one number is drawn, from which the others are made."""
    size = int(np.prod(shape, dtype=int))
    return draw(of) * np.linspace(1.0, 0.5, max(size, 1))[:size].reshape(shape)


@st.composite
def queries(draw):
    """Points, times and starts whose leading axes may or may not fit together."""
    x, t, x0 = draw(shapes), draw(shapes), draw(shapes)
    return draw(arrays((*x, 2))), draw(arrays(t, times)), draw(arrays((*x0, 2)))


def batch_of(x, t, x0):
    try:
        return np.broadcast_shapes(x.shape[:-1], t.shape, x0.shape[:-1])
    except ValueError:
        return None


@some
@given(queries())
def test_shapes_broadcast_as_in_numpy(query):
    batch = batch_of(*query)
    if batch is None:
        with pytest.raises(ValueError, match="must broadcast"):
            EXACT.log_prob(*query)
        return
    value = EXACT.log_prob(*query)
    assert value.shape == batch
    assert EXACT.score(*query).shape == (*batch, 2)
    x, t, x0 = query
    rows = np.broadcast_to(x, (*batch, 2)), np.broadcast_to(t, batch)
    alone = [
        EXACT.log_prob(rows[0][i], rows[1][i], np.broadcast_to(x0, (*batch, 2))[i])
        for i in itertools.islice(np.ndindex(batch), 2)
    ]
    # The same operations, fused in another order.
    np.testing.assert_allclose(value.ravel()[:2], alone, rtol=1e-12, atol=1e-12)


@some
@given(queries(), st.sampled_from([(), 2, (2, 1), (0,)]))
def test_samples_have_their_own_axes_in_front(query, shape):
    _, t, x0 = query
    batch = batch_of(x0, t, x0)
    if batch is None:
        with pytest.raises(ValueError, match="must broadcast"):
            EXACT.sample(jr.key(0), t, x0, shape)
        return
    front = (shape,) if isinstance(shape, int) else shape
    assert EXACT.sample(jr.key(0), t, x0, shape).shape == (*front, *batch, 2)


@some
@given(st.integers(0, 2**32 - 1))
def test_a_key_decides_the_draws_however_it_is_written(seed):
    key = jr.key(seed)
    first = EXACT.sample(key, 0.5, [0.0, 0.0], 3)
    for same in (key, jr.key_data(key), np.asarray(jr.key_data(key))):
        np.testing.assert_array_equal(EXACT.sample(same, 0.5, [0.0, 0.0], 3), first)
    assert np.any(EXACT.sample(jr.fold_in(key, 1), 0.5, [0.0, 0.0], 3) != first)


@some
@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=2),
    st.integers(1, 3),
    st.sampled_from([np.int8, np.int32, np.int64, np.uint8, np.float16, np.float32, list, jnp]),
)
def test_whole_numbers_are_taken_in_any_type(x, t, kind):
    if kind is np.uint8:
        x = np.abs(x).tolist()
    make = {list: np.ndarray.tolist, jnp: jnp.asarray}.get(kind, lambda a: a.astype(kind))
    typed = [make(np.asarray(value)) for value in (x, t, x)]
    found = EXACT.log_prob(*typed)
    assert found.dtype == np.float64
    # The numbers are the same to the last bit, and so is what is made of them.
    np.testing.assert_array_equal(found, EXACT.log_prob(np.array(x, float), float(t), x))


@pytest.mark.slow
@some
@given(arrays((3, 2)), arrays((3,), times))
def test_single_precision_agrees_to_its_digits(x, t):
    double = EXACT.log_prob(x, t, [0.5, -0.2])
    with jax.enable_x64(False):
        single = EXACT.log_prob(x, t, [0.5, -0.2])
    assert single.dtype == np.float32
    # Squares of differences over times of 1e-2 at least.
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-4)


@some
@given(queries(), st.sampled_from(["x", "t", "x0"]), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_nan_and_infinity_never_pass_unnoticed(query, name, bad):
    arguments = dict(zip(("x", "t", "x0"), query, strict=True))
    if batch_of(*query) is None or not arguments[name].size:
        return
    arguments[name].flat[-1] = bad
    if name == "x" and not np.isnan(bad):
        found = np.asarray(EXACT.log_prob(**arguments))
        assert not np.isnan(found).any()
        vanishes = np.broadcast_to(np.isinf(arguments["x"]).any(axis=-1), found.shape)
        np.testing.assert_array_equal(np.isneginf(found), vanishes)
        assert np.all(np.asarray(EXACT.prob(**arguments))[vanishes] == 0)
    else:
        with pytest.raises(ValueError, match=r"contains NaN|must be finite|must lie in"):
            EXACT.log_prob(**arguments)


def test_nan_stays_nan_where_it_cannot_be_refused():
    x = jnp.array([[np.nan, 0.0], [np.inf, 0.0], [np.inf, np.nan], [0.0, 0.0]])
    found = np.asarray(jax.jit(lambda x: EXACT.log_prob(x, 0.5, [0.0, 0.0]))(x))
    np.testing.assert_array_equal(np.isnan(found), [True, False, True, False])
    assert np.isneginf(found[1])


def test_gradients_are_finite_beside_points_at_infinity():
    x = jnp.array([[np.inf, 0.0], [0.3, 0.1]])
    slope = jax.grad(lambda x: EXACT.prob(x, 0.5, [0.0, 0.0]).sum())(x)
    assert np.all(np.isfinite(slope))


@some
@given(arrays((3, 2)), times, arrays((2,)))
def test_compiled_queries_agree_with_eager_ones(x, t, x0):
    np.testing.assert_allclose(LOG_PROB(x, t, x0), EXACT.log_prob(x, t, x0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(SCORE(x, t, x0), EXACT.score(x, t, x0), rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@some
@given(shapes, shapes, numbers)
def test_parameters_broadcast_with_points(x_shape, rate_shape, rate):
    params = {"rate": np.full(rate_shape, rate), "level": 0.1, "noise": np.full((), 0.7)}
    x = np.zeros((*x_shape, 1))
    try:
        batch = np.broadcast_shapes(x_shape, rate_shape)
    except ValueError:
        with pytest.raises(ValueError, match="must broadcast"):
            FAMILY.log_prob(x, 0.5, [0.0], params)
        return
    assert FAMILY.log_prob(x, 0.5, [0.0], params).shape == batch


@some
@given(numbers)
def test_states_of_one_component_are_never_guessed(x):
    with pytest.raises(ValueError, match=r"x\[\.\.\., None\]"):
        FAMILY.log_prob(x, 0.5, [0.0], {"rate": 1.0, "level": 0.0, "noise": 1.0})


@pytest.mark.slow
def test_learned_densities_take_empty_batches_and_infinities():
    density = still_density(df.models.brownian(1), source="euler")
    assert density.log_prob(np.zeros((0, 1)), 0.5, [0.0]).shape == (0,)
    assert density.sample(jr.key(0), 0.5, np.zeros((0, 1))).shape == (0, 1)
    assert density.score(np.zeros((0, 1)), 0.5, [0.0]).shape == (0, 1)
    np.testing.assert_array_equal(density.prob([[np.inf], [-np.inf]], 0.5, [0.0]), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "x, t, x0", [((7,), (), ()), ((7, 1), (3,), ()), ((2, 7), (), (7,)), ((), (9,), (2, 1))]
)
def test_pieces_make_no_difference(x, t, x0, monkeypatch, getkey):
    query = jr.normal(getkey(), (*x, 2)), jr.uniform(getkey(), t) + 0.1, jnp.full((*x0, 2), 0.3)
    whole = EXACT.log_prob(*query), EXACT.score(*query)
    monkeypatch.setattr(batching, "ROWS", 4)
    for found, expected in zip((EXACT.log_prob(*query), EXACT.score(*query)), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


_TEN_MILLION = """
import json, resource, sys
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from helpers import still_density
import diracflow as df
density, n = still_density(df.models.brownian(1), source="euler"), 10**7
density.log_prob(np.zeros((1000, 1)), 0.5, np.zeros((1000, 1)))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
x, x0 = np.linspace(-3, 3, n)[:, None], np.linspace(-1, 1, n)[:, None]
before = peak()
values = np.asarray(density.log_prob(x, 0.5, x0))
few = np.asarray(density.log_prob(x[:: n // 10], 0.5, x0[:: n // 10]))
print(json.dumps({"grown": peak() - before, "same": bool(np.allclose(values[:: n // 10], few))}))
"""


@pytest.mark.slow
def test_ten_million_rows_take_bounded_memory():
    done = subprocess.run(
        [sys.executable, "-c", _TEN_MILLION],
        capture_output=True,
        text=True,
        env=dict(os.environ) | {"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["same"]
    # 80 MB for each column of numbers: points and starts once more as JAX's arrays, results twice
    # while pieces are joined, distances of the starts likewise, and what a piece of a million rows
    # needs, some columns of its own.
    assert found["grown"] < (6 + 2) * 80e6
