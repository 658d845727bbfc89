import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.source.ensemble import ensemble
from helpers import ansatz_for, frame_of, problem_for

WELL = df.SDE(lambda t, x: x - x**3, lambda t, x: 0.7 * jnp.eye(1), 1)


def closure(sde, mean, covariance, horizon, start_time=0.0):
    paths = ensemble(sde, np.asarray(mean), np.asarray(covariance), start_time, horizon)
    return df.ClosureSource(sde=sde, ensemble=paths, start_time=start_time)


@pytest.mark.parametrize("dim", [1, 2, pytest.param(6, marks=pytest.mark.slow)])
def test_linear_equations_are_exact_however_stiff(dim, getkey):
    rates = np.geomspace(0.1, 20, dim) if dim > 1 else np.array([20.0])
    turn = np.linalg.qr(np.random.default_rng(dim).normal(size=(dim, dim)))[0]
    noise = np.eye(dim) + 0.2 * np.tri(dim)
    model = df.models.ornstein_uhlenbeck(dim, rate=turn @ np.diag(rates) @ turn.T, noise=noise)
    source = df.SourceDensity(closure(model.sde, np.zeros(dim), np.eye(dim), 10.0), 10.0)
    x0 = jr.normal(getkey(), (4, dim))
    found = df.errors(source, model.exact, [1e-3, 0.1, 1.0, 10.0], x0, key=getkey()).squared_l2
    # Splines of 2048 pieces are off by 1e-8 at most.
    assert np.all(found < 1e-14)


def test_it_is_the_euler_step_at_first(getkey):
    # To first order in tau; the next order differs.
    model = df.models.sheared(4)
    source = closure(model.sde, np.zeros(4), np.eye(4), 1.0)
    x0, euler = 0.5 * jr.normal(getkey(), (4,)), df.EulerSource(model.sde)
    taus = np.array([1e-3, 1e-4, 1e-5])
    frames = [[frame_of(s, jnp.array(t), x0) for s in (source, euler)] for t in taus]
    pairs = list(zip(taus, frames, strict=True))
    gaps = [np.abs(f.factor - e.factor).max() / np.sqrt(t) for t, (f, e) in pairs]
    assert np.all(np.array(gaps) < 3 * taus)
    for t, (f, e) in pairs:
        np.testing.assert_allclose(f.mean, e.mean, atol=10 * t**2)


@pytest.fixture(scope="module")
def well():
    return closure(WELL, [0.0], [[1.0]], 5.0)


@pytest.mark.parametrize("x0", [-2.5, 0.0, 0.1, 4.0])
def test_it_stays_where_paths_are(x0, well):
    # In a double well paths live within three of the origin; an Euler step from 4 goes to -176.
    for tau in (0.01, 0.1, 1.0, 5.0):
        frame = frame_of(well, jnp.array(tau), jnp.array([x0]))
        assert abs(frame.mean[0]) <= max(abs(x0), 1.0)  # the wells are at one
        # As wide as the ensemble in the end, 0.7, and never wider than noise alone makes it.
        assert 0 < frame.factor[0, 0] < min(0.75, 0.71 * np.sqrt(tau))
    assert frame.factor[0, 0] > 0.6


def test_frames_are_differentiable_in_time_and_start(well):
    def frame(tau, x0):
        found = frame_of(well, tau, x0)
        return jnp.concatenate([found.mean, found.factor[0]])

    tau, x0, step = jnp.array(0.7), jnp.array([0.8]), 1e-5
    by_time, by_start = jax.jacfwd(frame, (0, 1))(tau, x0)
    times = (frame(tau + step, x0) - frame(tau - step, x0)) / (2 * step)
    starts = (frame(tau, x0 + step) - frame(tau, x0 - step)) / (2 * step)
    # Central differences: off by the square of the step times a third derivative.
    np.testing.assert_allclose(by_time, times, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(by_start[:, 0], starts, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_expansion_counts_only_where_jacobians_agree():
    # tanh parts paths near the origin only: the width grows as noise alone makes it. A linear
    # drift parts them everywhere: the width grows exponentially.
    def one(drift):
        return df.SDE(drift, lambda t, x: jnp.eye(1), 1)

    tau, x0 = jnp.array(2.0), jnp.zeros(1)
    bounded = closure(one(lambda t, x: jnp.tanh(x)), [0.0], [[1.0]], 2.0).frame(tau, x0)
    np.testing.assert_allclose(bounded.factor, np.sqrt(2.0), rtol=1e-6)
    linear = closure(one(lambda t, x: x), [0.0], [[1.0]], 2.0).frame(tau, x0)
    np.testing.assert_allclose(linear.factor, np.sqrt((np.exp(4) - 1) / 2), rtol=1e-8)


def test_equal_problems_share_an_ensemble():
    paths = [ensemble(WELL, np.zeros(1), np.eye(1), 0.0, horizon) for horizon in (5.0, 5.0, 4.0)]
    assert paths[0] is paths[1] is not paths[2]
    other = ensemble(WELL, np.zeros(1), 2 * np.eye(1), 0.0, 5.0)
    assert other is not paths[0]


def test_coefficients_that_are_not_finite_are_reported_at_once_or_left_to_training():
    sde = df.SDE(lambda t, x: jnp.where(x > 1.2, jnp.nan, 10.0), lambda t, x: jnp.eye(1), 1)
    with pytest.raises(ValueError, match='source="euler"'):
        closure(sde, [0.5], [[1.0]], 5.0)
    later = closure(sde, [0.0], [[1.0]], 5.0)  # the ensemble gets there only later
    assert np.isfinite(later.frame(jnp.array(0.01), jnp.zeros(1)).mean[0])
    assert np.isnan(later.frame(jnp.array(1.0), jnp.zeros(1)).mean[0])


def test_time_dependent_coefficients_start_where_they_should():
    sde = df.SDE(lambda t, x: -t * x, lambda t, x: jnp.eye(1), 1)
    frame = closure(sde, [0.0], [[1.0]], 1.0, start_time=2.0).frame(jnp.array(1.0), jnp.ones(1))
    # m = exp(-integral of t from 2 to 3); sixteen steps with the rate of their middles.
    np.testing.assert_allclose(frame.mean, np.exp(-2.5), rtol=1e-3)


@pytest.mark.slow
def test_families_of_wells_start_as_their_euler_steps():
    wells = df.SDE(
        lambda t, x, p: p["depth"] * (x - x**3),
        lambda t, x, p: p["noise"] * jnp.eye(1),
        1,
        params=("depth", "noise"),
    )
    params = {"depth": df.Uniform(0.5, 1.5), "noise": df.Uniform(0.4, 1.0)}
    problem = problem_for(wells, df.Normal(0.0, 1.0), 5.0, params)
    source = ansatz_for(problem, layers=2, hidden=3).source
    # Of a drift that is not linear; a width of its own would leave each start in its well.
    assert isinstance(source, df.ClosureSource)
    euler, tau = df.EulerSource(wells), jnp.array(1e-6)
    for g in problem.law.sample(jr.key(1), (4,)):
        frame, step = source.frame(tau, g), euler.frame(tau, g)
        np.testing.assert_allclose(frame.factor, step.factor, rtol=1e-4)
        np.testing.assert_allclose(frame.mean, step.mean, atol=1e-10)
        # In the end as wide as the noise of its own parameters makes the ensemble.
        late = source.frame(jnp.array(5.0), g)
        ratio = late.factor[0, 0] / g[2]
        assert 0.5 < ratio < 1.5
