import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import kstest

import diracflow as df
from helpers import EXACT_MODELS

BENES = df.models.benes()
# For Brownian motion the Euler step is exact, and it compiles quickly.
_PLANE = df.models.brownian(2).sde
BROWNIAN = df.models.Model(
    "brownian", _PLANE, df.Normal(0.0, 1.0), 1.0, df.SourceDensity(df.EulerSource(_PLANE))
)
OU = EXACT_MODELS["ou-1d"][0]


def bridged(model, key, t=1.0, steps=200, paths=2000, **others):
    dim = model.sde.dim
    return df.bridge(
        key, model.exact, np.zeros(dim), np.ones(dim), t, steps, paths, sde=model.sde, **others
    )


def at(found, share):
    """Return the index of the time nearest to a fraction of the time span, and this time."""
    index = int(np.argmin(np.abs(found.times - share * found.times[-1])))
    return index, float(found.times[index])


@pytest.mark.parametrize("model", [BROWNIAN, BENES], ids=["brownian", "benes"])
def test_brownian_and_benes_bridges_are_brownian_bridges(model, getkey):
    found = bridged(model, getkey())
    paths = np.asarray(found.resample(getkey(), 2000))
    for share in (0.1, 0.5, 0.97):
        index, s = at(found, share)
        for component in range(2):
            law = ("norm", (s, np.sqrt(s * (1 - s))))
            assert kstest(paths[:, index, component], *law).pvalue > 1e-4


def test_ornstein_uhlenbeck_bridge_has_the_marginals_of_bayes_rule(getkey):
    found = bridged(OU, getkey())
    paths = np.asarray(found.resample(getkey(), 2000))
    x = np.linspace(-4, 5, 4001)[:, None]
    for share in (0.1, 0.5, 0.9):
        index, s = at(found, share)
        log_p = OU.exact.log_prob(x, s, [0.0]) + OU.exact.log_prob([1.0], 1 - s, x)
        cdf = np.cumsum(np.exp(log_p - OU.exact.log_prob([1.0], 1.0, [0.0]))) * (x[1] - x[0])
        assert abs(cdf[-1] - 1) < 1e-6  # Chapman--Kolmogorov, by a rule exact for smooth functions
        assert kstest(paths[:, index, 0], lambda y: np.interp(y, x[:, 0], cdf)).pvalue > 1e-4  # noqa: B023


@pytest.mark.parametrize("name", ["ou-1d", "benes", "sheared"])
def test_an_exact_density_guides_well(name, getkey):
    found = bridged(EXACT_MODELS[name][0], getkey())
    # The loss comes from the Euler step: the error of its log-density is half the drift Jacobian
    # times (dW^2 - h), of total variance of order t h.
    assert found.effective_share > 0.9


@pytest.mark.slow
def test_true_short_transitions_do_not_suit_noise_that_depends_on_the_state(getkey):
    sheared = EXACT_MODELS["sheared"][0]
    # The log-density of a Gaussian step has an error of order sqrt(h): summed over all steps the
    # variance is of order t for any h. Effective sample sizes are 0.3 to 0.4 of the paths with 20
    # to 200 steps.
    assert bridged(sheared, getkey(), local=sheared.exact).effective_share < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, 20])
def test_linear_oscillators_with_noise_on_the_velocity_are_bridged_exactly(steps, getkey):
    model = df.models.linear_langevin()
    ends = (jnp.array([0.3, -0.5]), jnp.array([0.8, 0.4]))
    found = df.bridge(getkey(), model.exact, *ends, 1.0, steps, 64, sde=model.sde)
    exact = float(model.exact.log_prob(ends[1], 1.0, ends[0]))
    # The last steps have widths of order (t / steps^2)^(3/2), to which rounding is relative.
    np.testing.assert_allclose(found.log_weights, exact, atol=1e-7)


def test_brownian_motion_is_bridged_exactly_by_two_steps(getkey):
    found = bridged(BROWNIAN, getkey(), steps=2)
    exact = float(BROWNIAN.exact.log_prob(np.ones(2), 1.0, np.zeros(2)))
    np.testing.assert_allclose(found.log_weights, exact, rtol=1e-12)


@pytest.mark.slow
def test_exact_short_transitions_leave_equal_weights_on_benes(getkey):
    found = bridged(BENES, getkey(), t=3.0, steps=5, local=BENES.exact)
    exact = float(BENES.exact.log_prob(np.ones(2), 3.0, np.zeros(2)))
    np.testing.assert_allclose(found.log_weights, exact, rtol=1e-12)


@pytest.mark.slow
def test_weights_make_up_for_a_density_of_another_process(getkey):
    x0, x1 = np.array([0.3, -0.4]), np.array([1.0, 0.5])
    found = df.bridge(
        *(getkey(), BROWNIAN.exact, x0, x1, 1.0, 200, 4000), sde=BENES.sde, local=BENES.exact
    )
    assert found.effective_share < 0.99, "the weights must show that the density is wrong"
    exact = float(BENES.exact.log_prob(x1, 1.0, x0))
    weights = np.exp(np.asarray(found.log_weights) - exact)
    # Five standard errors. The wrong density enters over the last step, and adds a bias of order
    # 1 / 200^2.
    assert abs(weights.mean() - 1) < 5 * weights.std() / np.sqrt(len(weights))
    middle, s = at(found, 0.5)
    variance = found.mean(lambda path: (path[middle] - x0 - s * (x1 - x0)) ** 2)
    # The variance of a Brownian bridge. Squares of Gaussians have the relative standard error
    # sqrt(2 / n).
    error = 5 * np.sqrt(2 / (4000 * found.effective_share))
    np.testing.assert_allclose(variance, s * (1 - s), rtol=error)


@pytest.mark.slow
def test_the_density_by_euler_steps_is_of_first_order(getkey):
    exact = float(OU.exact.log_prob(np.ones(1), 1.0, np.zeros(1)))
    key = getkey()
    errors = [bridged(OU, key, steps=n, paths=20_000).log_density - exact for n in (50, 200)]
    # Errors of 0.022 and 0.005 with standard errors 6e-4 and 3e-4: the ratio is known to 0.3. It
    # would be 2 at order one half and 16 at order two.
    assert 2.7 < errors[0] / errors[1] < 5.5


def test_paths_are_tied_at_both_ends(getkey):
    found = bridged(BENES, getkey(), t=2.0, steps=10, paths=3)
    assert found.paths.shape == (3, 11, 2)
    assert found.times.shape == (11,)
    assert (float(found.times[0]), float(found.times[-1])) == (0.0, 2.0)
    np.testing.assert_array_equal(found.paths[:, 0], np.zeros((3, 2)))
    np.testing.assert_array_equal(found.paths[:, -1], np.ones((3, 2)))
    assert np.all(np.diff(found.times, 2) < 0), "steps must shorten towards the end"


def test_resampling_follows_the_weights(getkey):
    times, paths = jnp.arange(2.0), jnp.arange(4.0)[:, None, None] * jnp.ones((4, 2, 1))
    from diracflow.uses.bridges import Bridge

    found = Bridge(times, paths, jnp.log(jnp.array([0.5, 0.25, 0.25, 0.0])) - 700.0, outside=0.0)
    counts = np.bincount(np.asarray(found.resample(getkey(), 400))[:, 0, 0].astype(int))
    np.testing.assert_array_equal(counts, [200, 100, 100])
    assert found.effective_share == pytest.approx(1 / (4 * 0.375))
    assert float(found.mean(lambda path: path[0, 0])) == pytest.approx(0.75)


MISTAKES = {
    "t zero": ({"t": 0.0}, "point mass"),
    "t beyond horizon": ({"t": 2.0}, r"`t` must lie in \(0, 1"),
    "two times": ({"t": [0.1, 0.2]}, "one time"),
    "one step": ({"steps": 1}, "`steps` must be at least 2"),
    "no path": ({"paths": 0}, "`paths` must be at least 1"),
    "partial end": ({"x1": [1.0, np.nan]}, "All components of both ends"),
    "far away": ({"x1": [1e200, 0.0]}, "cannot be reached"),
    "infinite end": ({"x1": [np.inf, 0.0]}, "`x1` must be finite"),
    "wrong shape": ({"x0": [0.0]}, r"shape \(2,\); got \(1,\)"),
    "no SDE": ({"sde": None}, "does not know its SDE"),
    "other dimension": ({"sde": OU.sde}, "must have 2 components"),
    "not an SDE": ({"sde": BENES}, "must be a `diracflow.SDE`"),
}


@pytest.mark.parametrize("change, message", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_refused(change, message):
    density = df.SourceDensity(df.EulerSource(BENES.sde), horizon=1.0)
    good = {"x0": [0.0, 0.0], "x1": [1.0, 1.0], "t": 0.5, "steps": 4, "paths": 5, "sde": BENES.sde}
    with pytest.raises(ValueError, match=message):
        df.bridge(jr.key(0), density, **(good | change))


def test_coefficients_that_change_in_time_are_refused(getkey):
    sde = df.SDE(lambda t, x: jnp.sin(2 * jnp.pi * t) - x, lambda t, x: jnp.eye(1), 1)
    with pytest.raises(ValueError, match="`drift` depends on time"):
        df.bridge(getkey(), OU.exact, [0.0], [1.0], 1.0, sde=sde)


def test_paths_that_leave_the_domain_are_reported(getkey):
    sde = df.SDE(lambda t, x: 0.1 - x, lambda t, x: jnp.sqrt(x)[:, None], 1)
    density = df.SourceDensity(df.EulerSource(sde))
    with pytest.raises(df.WeightsVanished, match=r"\d+ of 50 paths.*`steps`"):
        df.bridge(getkey(), density, [0.05], [0.05], 1.0, 20, 50, sde=sde)
