"""Posteriors of parameters against known ones."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray

import diracflow as df
from diracflow.inference.posterior_tree import convergence, warn_of

OU = df.ExactOrnsteinUhlenbeck()
TRUE = {"rate": 0.8, "level": 0.3, "noise": 0.6}
GAP, LENGTH = 0.5, 60
TIMES = GAP * np.arange(LENGTH + 1)
# Priors that fix all parameters but the level, to 0.01 %.
PRIOR = {
    "rate": df.Uniform(0.8, 0.80008),
    "level": df.Normal(0.0, 1.0),
    "noise": dist.Uniform(0.6, 0.60006),
}


@pytest.fixture(scope="module")
def states():
    def step(x, key):
        after = OU.sample(key, GAP, x, params=TRUE)
        return after, after

    first = jnp.array([0.3])
    _, rest = jax.lax.scan(step, first, jr.split(jr.key(3), LENGTH))
    return np.concatenate([first[None], rest])


@pytest.fixture(scope="module")
def tree(states):
    return df.infer(jr.key(0), OU, TIMES, states, PRIOR, chains=4, draws=400, warmup=300)


def conjugate(states):
    """Return mean and standard deviation of the level in a Gaussian linear model."""
    decay = np.exp(-TRUE["rate"] * GAP)
    variance = TRUE["noise"] ** 2 * (1 - decay**2) / (2 * TRUE["rate"])
    seen = states[1:, 0] - decay * states[:-1, 0]  # (1 - decay) level + noise
    precision = 1 + LENGTH * (1 - decay) ** 2 / variance
    return (1 - decay) * seen.sum() / variance / precision, precision**-0.5


def test_posterior_of_the_level_is_the_conjugate_one(states, tree):
    mean, deviation = conjugate(states)
    level = tree.posterior["level"]
    error = deviation / np.sqrt(level.attrs["ess"])
    # Five standard errors of a mean; that of a standard deviation is smaller by sqrt(2).
    assert abs(float(level.mean()) - mean) < 5 * error
    assert abs(float(level.std()) - deviation) < 5 * error / np.sqrt(2)


def test_the_tree_has_arviz_groups_and_diagnostics(states, tree):
    assert set(tree.children) == {"posterior", "sample_stats", "observed_data"}
    assert tree.posterior["rate"].dims == ("chain", "draw")
    assert tree.posterior["rate"].shape == (4, 400)
    assert tree.sample_stats["diverging"].dtype == bool
    np.testing.assert_array_equal(tree.observed_data["states"], states)
    assert tree.attrs["ess"] == min(tree.posterior[name].attrs["ess"] for name in OU.params)
    assert tree.attrs["r_hat"] < 1.05
    assert tree.attrs["divergences"] == int(tree.sample_stats["diverging"].sum())
    assert tree.attrs["numpyro_version"]


def test_the_tree_survives_a_file(tree, tmp_path):
    tree.to_netcdf(tmp_path / "posterior.nc", engine="h5netcdf")
    again = xarray.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf")
    xarray.testing.assert_identical(again.posterior.to_dataset(), tree.posterior.to_dataset())
    assert again.attrs["r_hat"] == tree.attrs["r_hat"]
    again.close()


def test_bad_convergence_is_told():
    with pytest.warns(UserWarning, match="R-hat is 1.200, above 1.01.*warmup"):
        warn_of({"r_hat": 1.2, "divergences": 0})
    with pytest.warns(UserWarning, match="3 trajectories diverged.*Narrow"):
        warn_of({"r_hat": 1.0, "divergences": 3})


def test_chains_of_too_few_draws_have_unknown_convergence():
    assert np.isnan(convergence(np.zeros((2, 3)))["r_hat"])
    apart = convergence(
        np.arange(2.0)[:, None] + 0.1 * np.random.default_rng(0).normal(size=(2, 50))
    )
    assert apart["r_hat"] > 2


GOOD = np.zeros((LENGTH + 1, 1))
BAD_CALLS = {
    "missing": ({"rate": df.Normal()}, GOOD, {}, "`level`, `noise` missing"),
    "two numbers": (PRIOR | {"level": df.Normal([0.0, 0.0])}, GOOD, {}, "law of one number"),
    "batch": (PRIOR | {"level": dist.Normal(np.zeros(3), 1.0)}, GOOD, {}, "law of one number"),
    "a number": (PRIOR | {"level": 3.0}, GOOD, {}, "`level` must be a law.*3.0"),
    "product": (PRIOR | {"level": df.Product(df.Normal())}, GOOD, {}, "a `Normal`.*Prod"),
    "range": (
        PRIOR | {"noise": df.Normal(0.0, 1.0)},
        GOOD,
        {},
        "prior of `noise`.*trunc",
    ),
    "far off": (PRIOR, np.full_like(GOOD, 1e200), {}, "log-likelihood is .* at the centre"),
    "chains": (PRIOR, GOOD, {"chains": 0}, "`chains` must be at least 1"),
    "times": (PRIOR, GOOD[:3], {}, "one entry for each"),
}


@pytest.mark.parametrize("prior, states, counts, message", BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_calls_are_refused(prior, states, counts, message):
    with pytest.raises(ValueError, match=message):
        df.infer(jr.key(0), OU, TIMES, states, prior, **counts)


def test_a_density_without_parameters_has_nothing_to_infer():
    with pytest.raises(ValueError, match="no parameters to infer"):
        df.infer(jr.key(0), df.models.brownian(1).exact, TIMES, GOOD, {})
