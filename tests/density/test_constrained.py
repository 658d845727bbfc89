"""Learned densities of states that live on a part of the line."""

import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.cli.model_commands import info_text
from diracflow.density.model_file import read_header
from diracflow.evaluate.consistency import agreement_with_paths
from diracflow.evaluate.errors import errors

pytestmark = pytest.mark.slow  # a training on a domain takes a minute to compile
SETTINGS = {"preset": "quick", "hidden": 4, "tolerance": 1e-2, "certify": False}
T, X0 = 0.5, np.array([0.05])


@pytest.fixture(scope="module")
def cir():
    return df.models.cir(0.5, 0.06, 0.15)  # Feller's index is 2.7: zero is never reached


@pytest.fixture(scope="module")
def learned(cir):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no word about the end
        return df.learn(cir.sde, cir.starts, T, key=jr.key(0), **SETTINGS)


def on_line(density, t, x0):
    """Points of a fine grid in the density's coordinates, and the weights of their states."""
    y, step = np.linspace(-12, 12, 4001, retstep=True)
    part = density.chart.maps[0]
    x = part.from_real(jnp.asarray(y))
    return np.asarray(x)[:, None], step * np.exp(-np.asarray(part.log_slope(x)))


def test_agrees_with_the_exact_density(learned, cir):
    x0 = np.array([[0.03], [0.05], [0.1]])
    found = errors(learned, cir.exact, [0.01, 0.1, T], x0)
    source = errors(learned.source_only(), cir.exact, [T], x0)
    # A small flow at a loose tolerance of 1e-2 nats, whose square is 1e-4.
    assert found.squared_l2.mean() < 1e-4
    assert found.squared_l2[-1].mean() < 0.2 * source.squared_l2.mean()


def test_unit_mass_over_the_domain(learned):
    x, weight = on_line(learned, T, X0)
    for law in (learned, learned.source_only()):
        # Trapezoidal sums of a smooth function that vanishes at both ends.
        np.testing.assert_allclose(weight @ law.prob(x, T, X0), 1.0, atol=1e-6)


def test_scores_by_finite_differences(learned):
    x, h = np.array([0.07]), 1e-6
    slope = (learned.log_prob(x + h, T, X0) - learned.log_prob(x - h, T, X0)) / (2 * h)
    # Rounding of 1e-16 in the log-density over h, relative to slopes of some ten.
    np.testing.assert_allclose(learned.score(x, T, X0)[0], slope, rtol=1e-5)
    slope = (learned.log_prob(x, T, X0 + h) - learned.log_prob(x, T, X0 - h)) / (2 * h)
    np.testing.assert_allclose(learned.start_score(x, T, X0)[0], slope, rtol=1e-5)


def test_residual_is_that_of_the_states_equation(learned):
    x, t = jnp.array([0.07]), jnp.array(0.2)

    @jax.jit
    def by_hand(x, t):
        def q(x, t):
            return learned._log_prob(learned._at_time(t), x, jnp.asarray(X0))

        return jax.grad(q, 1)(x, t) - df.log_density_rate(learned.sde, lambda x: q(x, t), t, x)

    # Both are small differences of terms of size one hundred.
    np.testing.assert_allclose(learned.residual(x, t, X0), by_hand(x, t), rtol=1e-6, atol=1e-9)


def test_outside_the_domain(learned):
    x = np.array([[-1.0], [0.0], [0.05]])
    log_probs = learned.log_prob(x, T, X0)
    np.testing.assert_array_equal(np.isneginf(log_probs), [True, True, False])
    np.testing.assert_array_equal(learned.prob(x[:2], T, X0), 0.0)
    np.testing.assert_array_equal(learned.score(x[:2], T, X0), 0.0)
    for bad in (0.0, -0.1):
        with pytest.raises(ValueError, match=r"`x0` must lie inside the domain \(0, inf\)"):
            learned.log_prob(x, T, [bad])
        with pytest.raises(ValueError, match="inside the domain"):
            learned.sample(jr.key(0), T, [bad])
        assert np.isnan(jax.jit(learned.log_prob)(x[2], T, jnp.array([bad])))


@pytest.mark.parametrize("x64", [True, False])
def test_samples_stay_inside(learned, x64, getkey):
    with jax.enable_x64(x64):
        x = learned.sample(getkey(), T, [0.02], 20_000)
        stages = learned.stages(8 * jr.normal(getkey(), (500, 1)), T, [0.02])
    assert x.dtype == (jnp.float64 if x64 else jnp.float32)
    for states in (x, stages):
        assert np.all(np.isfinite(states))
        assert np.all(states > 0)


def test_moments_of_samples(learned, getkey):
    x = np.asarray(learned.sample(getkey(), T, X0, 20_000))[:, 0]
    decay = np.exp(-0.5 * T)
    # The exact mean; 4 standard errors of 20 000 draws.
    assert abs(x.mean() - (0.06 + (X0[0] - 0.06) * decay)) < 4 * x.std() / np.sqrt(20_000)


def test_coverage_is_that_of_the_states(learned, cir):
    np.testing.assert_allclose(learned.coverage(np.array([0.06])), 1.0)
    assert learned.outside(np.array([2.0]))
    assert not learned.outside(np.array([0.06]))


def test_save_and_load(learned, cir, tmp_path):
    path = tmp_path / "cir.dflow"
    learned.save(path)
    loaded = df.load(path)
    x = np.array([[0.02], [0.06], [-0.1]])
    np.testing.assert_array_equal(loaded.log_prob(x, T, X0), learned.log_prob(x, T, X0))
    assert loaded.provenance.boundaries == learned.provenance.boundaries
    text = info_text(read_header(path), str(path))
    assert "Positive(power=0.5" in text
    assert "component 0 at 0: not reached (index 2.667)" in text
    real = df.SDE(cir.sde._drift, cir.sde._diffusion, 1)
    with pytest.raises(df.ModelFileError, match="learned on the domain"):
        df.load(path, sde=real)


def test_propagated_law_has_unit_mass(learned, cir):
    law = df.propagate(learned, cir.starts, T, draws=512)
    x, weight = on_line(learned, T, X0)
    # Quasi-random starts, a relative error of some 1e-4 a point.
    np.testing.assert_allclose(weight[::20] @ law.prob(x[::20]) * 20, 1.0, atol=2e-3)
    with pytest.raises(ValueError, match="inside the domain"):
        df.propagate(learned, df.Normal(0.05, 0.05), T)


def test_bridges_stay_inside_and_estimate_the_density(learned, cir, getkey):
    x1 = np.array([0.01])
    for density in (learned, cir.exact):
        found = df.bridge(getkey(), density, [0.03], x1, T, 50, 2000, sde=cir.sde)
        assert np.all(found.paths > 0)
        assert found.effective_share > 0.5
        # Euler steps in the coordinates err by a few per cent over fifty steps.
        exact = float(cir.exact.log_prob(x1, T, [0.03]))
        np.testing.assert_allclose(found.log_density, exact, atol=0.1)
    with pytest.raises(ValueError, match="`x1` must lie inside the domain"):
        df.bridge(getkey(), learned, [0.03], [-0.01], T)


def test_filter_and_likelihood(learned, cir, getkey):
    def observe(x, y):
        return -0.5 * ((y - x[0]) / 0.02) ** 2

    found = df.filter(getkey(), learned, [0.2, 0.6], [0.03, 0.08], observe, 500, history=True)
    assert np.all(found.particles > 0)
    with pytest.raises(ValueError, match="inside the domain"):
        df.filter(getkey(), learned, [0.2], [0.03], observe, initial=np.array([[-0.1]]))
    times, states = [0.0, 0.3, 0.5], np.array([[0.05], [0.04], [0.06]])
    exact = df.log_likelihood(cir.exact, times, states)
    # The square root of the error allowed above, for two transitions.
    np.testing.assert_allclose(df.log_likelihood(learned, times, states), exact, atol=0.05)


def test_agrees_with_simulated_paths(learned, getkey):
    found = agreement_with_paths(learned, getkey(), T, X0, paths=1000, steps=200)
    assert found.mean_z < 4
    assert found.energy_z < 4


def test_accessible_ends_are_announced(getkey):
    model = df.models.cir(0.5, 0.06, 0.3)
    with pytest.warns(df.BoundaryWarning, match=r"component 0 at 0.*0\.667.*cannot be trusted"):
        density = df.learn(
            model.sde, model.starts, 0.01, key=getkey(), hidden=2, tolerance=0.1, certify=False
        )
    assert density.provenance.boundaries[0]["accessible"]
