"""Times composed of several legs.

Most tests take linear equations, whose source is exact and whose flow rests: then a mixture over
legs differs from the exact density by its quadrature alone.
"""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, norm

import diracflow as df
from diracflow.density.learned import extended_horizon, extension_text
from diracflow.density.subintervals import Division, count_of, log_mixture, noise_rows, simulated
from diracflow.training.state import Trajectory
from helpers import composed, require_derivatives, stepped_density, still_density

LINE = dataclasses.replace(
    df.models.ornstein_uhlenbeck(1, rate=0.8, level=0.3, noise=0.6), horizon=3.0
)
X0 = jnp.array([1.2])
GRID = np.linspace(-4.0, 4.0, 801)[:, None]


@pytest.fixture(scope="module")
def line():
    """Two legs of 1.5 each."""
    return still_density(LINE, legs=2)


def total_variation(density, exact, t, x0):
    p, q = (np.asarray(law.prob(GRID, t, x0)) for law in (density, exact))
    return 0.5 * np.sum(np.abs(p - q)) * (GRID[1, 0] - GRID[0, 0])


def test_times_have_the_fewest_legs():
    t = jnp.array([0.1, 1.0, 1.0 + 1e-9, 1.1, 2.0, 2.9, 3.0])
    np.testing.assert_array_equal(count_of(t, Division(1.0, 3)), [1, 1, 1, 2, 2, 3, 3])


@pytest.mark.parametrize("t, number, length", [(0.8, 1, 0.8), (1.5, 2, 0.75), (2.4, 3, 0.7)])
def test_outer_legs_are_alike_and_inner_ones_whole(t, number, length):
    times = still_density(LINE, legs=3)._at_time(jnp.asarray(t))
    assert (int(times.number), float(times.inner.t)) == (number, 1.0)
    assert float(times.length) == float(times.outer.t) == pytest.approx(length)


def test_within_a_leg_the_density_is_that_of_the_flow(line):
    short = still_density(dataclasses.replace(LINE, horizon=1.5))
    assert (line.horizon, line.reach, line.legs) == (3.0, 1.5, 2)
    t = jnp.array([0.01, 0.7, 1.5])
    x = jnp.array([[0.2]])
    np.testing.assert_array_equal(line.log_prob(x, t, X0), short.log_prob(x, t, X0))


def test_two_legs_are_the_exact_density_up_to_quadrature(line):
    for t in (1.6, 2.4, 3.0):
        # 256 quasi-random points in one dimension: of the order of 1/256, less by smoothness.
        assert total_variation(line, LINE.exact, t, X0) < 2e-3


@pytest.mark.slow
def test_quadrature_converges_faster_than_independent_draws(line, getkey):
    t = jnp.array(3.0)
    x = LINE.exact.sample(getkey(), t, X0, (64,))
    exact = LINE.exact.log_prob(x, t, X0)

    @jax.jit
    def errors(rows):
        times = line._at_time(t)
        begins = simulated(line.base, times, X0, rows)
        return jax.vmap(lambda y: log_mixture(line.base, times, y, begins))(x) - exact

    sizes = [
        np.sqrt(np.mean([np.square(errors(noise_rows(seed, count, 2, 1))) for seed in range(8)]))
        for count in (64, 256, 1024)
    ]
    # Errors of independent draws would halve with four times as many.
    assert all(after < before / 2.5 for before, after in itertools.pairwise(sizes))


def test_mass_is_one(line):
    mass = np.sum(np.asarray(line.prob(GRID, 2.7, X0))) * (GRID[1, 0] - GRID[0, 0])
    # A mixture of densities; the sum over a grid of smooth ones is exact to rounding of the tails.
    assert mass == pytest.approx(1.0, abs=1e-8)


def test_samples_walk_all_legs(line, getkey):
    draws = np.asarray(line.sample(getkey(), 3.0, X0, (4000,)))[:, 0]
    mean = 0.3 + 0.9 * np.exp(-2.4)
    std = np.sqrt(0.36 / 1.6 * (1 - np.exp(-4.8)))
    # Kolmogorov-Smirnov: a correct sampler fails for one key in ten thousand.
    assert kstest(draws, norm(mean, std).cdf).pvalue > 1e-4


@pytest.mark.slow
def test_derivatives_are_those_of_the_values(line):
    x, t = jnp.array([0.6]), jnp.array(2.5)
    slopes = require_derivatives(line, x, t, X0)
    np.testing.assert_allclose(line.score(x, t, X0), slopes[0], rtol=1e-12)
    np.testing.assert_allclose(line.start_score(x, t, X0), slopes[2], rtol=1e-12)


@pytest.mark.slow
def test_a_query_may_mix_times_of_different_legs(line):
    t = jnp.array([0.5, 2.0, 3.0])
    each = [line.log_prob(jnp.array([0.4]), s, X0) for s in t]
    np.testing.assert_allclose(line.log_prob(jnp.array([0.4]), t, X0), each, rtol=1e-12)


@pytest.mark.slow
def test_legs_keep_parameters_and_stay_inside_domains(getkey):
    density = stepped_density(df.models.cir_family(), legs=2)
    params = {name: np.mean(ends) for name, ends in density.param_bounds.items()}
    x0 = jnp.array([0.3])
    x = np.linspace(1e-4, 4.0, 4001)[:, None]
    values = np.asarray(density.prob(x, 0.4, x0, params=params))
    # The trapezoidal rule on a density some tenths wide: its square of the spacing.
    assert np.trapezoid(values, x[:, 0]) == pytest.approx(1.0, abs=1e-4)
    draws = np.asarray(density.sample(getkey(), 0.4, x0, (2000,), params=params))
    assert np.all(draws > 0)
    mean = np.trapezoid(values * x[:, 0], x[:, 0])
    assert draws.mean() == pytest.approx(mean, abs=5 * draws.std() / np.sqrt(2000) + 1e-3)


@pytest.mark.slow
def test_three_legs_of_which_some_are_walked(getkey):
    density = still_density(LINE, legs=3)
    for t in (0.9, 1.6, 2.9):  # one, two and three legs
        assert total_variation(density, LINE.exact, t, X0) < 2e-3
        draws = np.asarray(density.sample(getkey(), t, X0, (2000,)))[:, 0]
        mean, std = 0.3 + 0.9 * np.exp(-0.8 * t), np.sqrt(0.225 * (1 - np.exp(-1.6 * t)))
        assert kstest(draws, norm(mean, std).cdf).pvalue > 1e-4


def test_known_times_and_whole_densities_within_jit(line):
    x = jnp.array([0.2])
    for t in (0.5, 2.5):
        value = line.log_prob(x, t, X0)
        known = jax.jit(lambda x, t=t: line.log_prob(x, t, X0))(x)
        np.testing.assert_allclose(known, value, rtol=1e-12)
        whole = eqx.filter_jit(lambda density, x0, t=t: density.log_prob(x, t, x0))
        traced = whole(line, X0)
        np.testing.assert_allclose(traced, value, rtol=1e-12)


@pytest.mark.slow
def test_the_bound_holds_over_legs(line, getkey):
    t = np.array([0.5, 2.0, 3.0])
    found = line.certificate(getkey(), t, X0, samples=16)
    assert found.bound.shape == (3,)
    for i, s in enumerate(t):
        distance = total_variation(line, LINE.exact, s, X0)
        assert distance <= found.bound[i] + 5 * found.stderr[i] + 1e-12
    alone = line.certificate(getkey(), 3.0, X0, samples=16)
    assert alone.bound.shape == ()
    # Sources are exact here, so that the bound is the quadrature's, which is small.
    assert found.bound[0] < 1e-9
    assert 1e-6 < found.bound[2] < 0.01


@pytest.mark.slow
def test_the_bound_of_flows_that_err_adds_up(line, getkey):
    # Parameters that go astray by a little.
    theta = np.asarray(line.base.ansatz.theta)
    off = 0.003 * np.random.default_rng(0).normal(size=theta.shape)
    clocks = np.array([0.0, np.sqrt(1.5)])
    path = Trajectory(clocks, np.stack([theta, theta + off]), *[off[None] / clocks[1]] * 2)
    density = composed(df.TransitionDensity(line.base.ansatz, path, line.scope, line.provenance))
    bound = density.certificate(getkey(), np.array([1.5, 3.0]), X0, samples=64).bound
    assert 1e-3 < bound[0] < 0.3
    # The second leg begins nearer to the middle; it adds as much as the first, or half of it.
    assert 1.5 * bound[0] < bound[1] < 3 * bound[0]
    assert total_variation(density, LINE.exact, 3.0, X0) < bound[1]


def test_what_is_the_flows_own_is_asked_within_a_leg(line):
    x = jnp.array([0.1])
    assert np.isfinite(line.residual(x, 1.4, X0))
    with pytest.raises(ValueError, match=r"up to t=1.5.*`t <= density.reach`"):
        line.residual(x, 2.0, X0)
    with pytest.raises(ValueError, match=r"up to t=1.5.*`t <= density.reach`"):
        line.stages(np.zeros((3, 1)), 2.0, X0)


@pytest.mark.slow
def test_the_source_alone_has_legs_too(line):
    source = line.source_only()
    # The flow rests at the identity, so the source is the density, here on a lattice.
    assert total_variation(source, LINE.exact, 2.5, X0) < 5e-5


@pytest.mark.slow
def test_files_keep_legs(tmp_path):
    density = stepped_density(LINE, legs=2)
    density.save(tmp_path / "model.dflow")
    again = df.load(tmp_path / "model.dflow")
    assert (again.legs, again.reach, again.horizon) == (2, 0.25, 0.5)
    x = jnp.array([0.2])
    np.testing.assert_array_equal(again.log_prob(x, 0.5, X0), density.log_prob(x, 0.5, X0))


def test_a_density_is_extended_without_learning(line, tmp_path):
    short = still_density(dataclasses.replace(LINE, horizon=1.5))
    longer = short.extended(2.8)
    assert (longer.horizon, longer.reach, longer.legs) == (3.0, 1.5, 2)
    assert total_variation(longer, LINE.exact, 2.8, X0) < 5e-5  # on a lattice
    assert longer.extended(1.0).legs == 2
    longer.save(tmp_path / "model.dflow")
    assert df.load(tmp_path / "model.dflow").horizon == 3.0


def test_what_cannot_be_extended_says_why(line):
    with pytest.raises(ValueError, match=r"needs 67 subintervals of 1.5; at most 16.*up to 6.25"):
        line.extended(100.0)
    for wrong in (0.0, -1.0, np.nan, "long"):
        with pytest.raises(ValueError, match="`horizon`"):
            line.extended(wrong)
    pushed = df.SDE(lambda t, x: jnp.sin(t) - x, lambda t, x: jnp.eye(1), 1)
    model = df.models.Model("pushed", pushed, df.Normal(0.0, 1.0).expand(1), 1.0, None)
    with pytest.raises(ValueError, match="do not depend on time.*Learn it again"):
        still_density(model).extended(2.0)


def test_trainings_that_stopped_short_say_what_can_be_composed():
    density = stepped_density(LINE)
    until = lambda horizon: dataclasses.replace(density.provenance.plan, horizon=horizon)
    short = density.with_provenance(status=df.Status.TIME_LIMIT, plan=until(1.2))
    assert "`extended(1.2)`" in extension_text(short)
    assert extended_horizon(short, 1.2) == pytest.approx(1.5)
    # Not where nothing may be there, or where that takes too many legs.
    for changed in ({"status": df.Status.EXPLODING}, {"plan": until(100.0)}):
        assert extension_text(short.with_provenance(**changed)) == ""


def test_a_failed_training_reaches_its_horizon_by_composition():
    density = stepped_density(LINE)
    failed = density.with_provenance(status=df.Status.FLOW_TOO_SMALL)
    whole = failed.reaching(3 * failed.horizon)
    assert isinstance(whole, df.ComposedDensity)
    assert whole.horizon == 3 * failed.horizon
    # Subintervals end before the last steps of the training: 3 / 0.8 rounded up.
    assert whole.legs == 4
    # Nothing is composed where nothing may be there, or of too many subintervals.
    gone = density.with_provenance(status=df.Status.EXPLODING)
    assert gone.reaching(3 * gone.horizon) is gone
    assert failed.reaching(20 * failed.horizon) is failed
