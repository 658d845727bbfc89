"""Posteriors given noisy, partial observations, against those of Gaussian linear models."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm

import diracflow as df
from diracflow.hidden.evidence import HiddenProcess, curve_index
from diracflow.hidden.particle_filter import schedule
from diracflow.inference import chain_file
from diracflow.inference.posterior_tree import convergence
from diracflow.models.exact_densities import AbstractExactDensity

OU = df.ExactOrnsteinUhlenbeck()
TRUE = {"rate": 0.8, "level": 0.4, "noise": 0.6}
LAW = df.Normal(0.0, 0.5)
ERROR, LENGTH = 0.3, 25
# Uneven gaps, with two missing observations.
TIMES = np.cumsum(np.tile([0.3, 0.9, 0.5, 0.5, 0.6], 5))
MISSING = [7, 8]
# The rate is fixed to 0.01 %.
PRIOR = {
    "rate": df.Uniform(0.8, 0.80008),
    "level": df.Normal(0.0, 1.0),
    "noise": df.LogNormal(-0.5, 0.4),
}
SMALL = {"observe": lambda x, y: norm.logpdf(y[0], x[0], ERROR), "initial": LAW, "particles": 30}


@pytest.fixture(scope="module")
def seen():
    path = np.asarray(df.simulate(5, OU, TIMES, LAW, params=TRUE).states)[0]
    y = path + ERROR * np.random.default_rng(1).normal(size=path.shape)
    y[MISSING] = np.nan
    return y


def joint(noise):
    """Mean and covariance of the level and the states, and the rows of those observed."""
    decay = np.exp(-TRUE["rate"] * TIMES)
    spread = noise**2 / (2 * TRUE["rate"])
    gaps = np.abs(TIMES[:, None] - TIMES)
    own = spread * np.exp(-TRUE["rate"] * gaps) + (LAW.factor**2 - spread) * np.outer(decay, decay)
    lift = np.append(1.0, 1 - decay)  # of the level and all states, by the level
    covariance = np.outer(lift, lift)
    covariance[1:, 1:] += own
    return covariance, 1 + np.delete(np.arange(LENGTH), MISSING)


def conditioned(noise, seen):
    """Log-evidence, and mean and covariance of level and states given the observations."""
    covariance, rows = joint(noise)
    y = seen[rows - 1, 0]
    total = covariance[np.ix_(rows, rows)] + ERROR**2 * np.eye(len(rows))
    gain = np.linalg.solve(total, covariance[rows]).T
    evidence = -0.5 * (y @ np.linalg.solve(total, y) + np.linalg.slogdet(2 * np.pi * total)[1])
    return evidence, gain @ y, covariance - gain @ covariance[rows]


@pytest.fixture(scope="module")
def exact(seen):
    """Means and standard deviations of noise, level and states, by a sum over noise."""
    grid = np.exp(np.linspace(-2.5, 1.0, 200))
    found = [conditioned(noise, seen) for noise in grid]
    log_weights = np.array([f[0] for f in found]) - 0.5 * ((np.log(grid) + 0.5) / 0.4) ** 2
    weights = np.exp(log_weights - log_weights.max())  # a grid even in the logarithm
    means = np.column_stack([grid, [f[1] for f in found]])
    inner = np.column_stack([0 * grid, [np.diag(f[2]) for f in found]])
    mean = np.average(means, axis=0, weights=weights)
    return mean, np.sqrt(np.average(inner + (means - mean) ** 2, axis=0, weights=weights))


@pytest.fixture(scope="module")
def tree(seen):
    sizes = {"chains": 4, "draws": 500, "warmup": 150}
    return df.infer(jr.key(0), OU, TIMES, seen, PRIOR, **sizes, **SMALL)


def test_the_posterior_is_that_of_the_kalman_evidence(tree, exact):
    mean, deviation = exact
    for index, name in enumerate(("noise", "level")):
        draws = tree.posterior[name]
        # Five standard errors; the squared deviation of a nearly normal law has the error sqrt(2).
        error = deviation[index] / np.sqrt(draws.attrs["ess"])
        assert abs(float(draws.mean()) - mean[index]) < 5 * error
        assert abs(float(draws.var()) - deviation[index] ** 2) < 5 * 2 * deviation[index] * error


def test_states_follow_their_law_given_all_observations(tree, exact):
    mean, deviation = exact[0][2:], exact[1][2:]
    states = tree["hidden"]["states"].values[..., 0]
    for index in range(0, LENGTH, 6):
        ess = convergence(states[..., index])["ess"]
        error = deviation[index] / np.sqrt(ess)
        assert abs(states[..., index].mean() - mean[index]) < 5 * error
        assert abs(states[..., index].var() - deviation[index] ** 2) < 10 * deviation[index] * error


def test_the_tree_has_arviz_groups_and_the_states(tree):
    assert set(tree.children) == {"posterior", "sample_stats", "observed_data", "hidden"}
    assert tree["hidden"]["states"].shape == (4, 500, LENGTH, 1)
    assert tree.attrs["ess"] == min(tree.posterior[name].attrs["ess"] for name in OU.params)
    assert 0.05 < float(tree.sample_stats["acceptance_rate"].mean()) < 0.6
    assert np.all(np.isfinite(tree.sample_stats["log_evidence"]))


@pytest.fixture(scope="module")
def runs(seen):
    """Evidences of 64 filters, of the same with correlated noise, and with new noise."""
    plan = schedule(OU, TIMES, seen, 0.0)
    process = HiddenProcess(OU, SMALL["observe"], plan, LAW.expand(1), 30)
    old, new = process.noise(jr.key(1), 64), process.noise(jr.key(2), 64)
    near = jax.tree.map(lambda a, b: 0.99 * a + np.sqrt(1 - 0.99**2) * b, old, new)
    params = {name: jnp.full(64, value) for name, value in TRUE.items()}
    return [np.asarray(process.run(noise, params).total) for noise in (old, near, new)]


def test_the_evidence_is_unbiased(runs, seen):
    # Given the level, which `joint` integrates over: its law there is a point mass.
    decay = np.exp(-TRUE["rate"] * TIMES)
    covariance, rows = joint(TRUE["noise"])
    own = covariance[1:, 1:] - np.outer(1 - decay, 1 - decay)
    chosen = rows - 1
    total = own[np.ix_(chosen, chosen)] + ERROR**2 * np.eye(len(rows))
    above = seen[chosen, 0] - TRUE["level"] * (1 - decay)[chosen]
    exact = -0.5 * (above @ np.linalg.solve(total, above) + np.linalg.slogdet(2 * np.pi * total)[1])
    ratios = np.exp(np.concatenate([runs[0], runs[2]]) - exact)
    assert abs(ratios.mean() - 1) < 5 * ratios.std() / np.sqrt(len(ratios))


def test_correlated_noise_keeps_the_evidence_near(runs):
    # Ten standard errors, 1 / sqrt(2 * 64) each, separate a ratio of 1/2 from one.
    assert np.std(runs[1] - runs[0]) < 0.5 * np.std(runs[2] - runs[0])


@pytest.mark.parametrize("dim, bits", [(2, 4), (3, 2), (4, 1)])
def test_hilbert_curve_passes_each_cell_once_and_steps_to_neighbours(dim, bits):
    cells = np.stack(np.meshgrid(*[np.arange(2**bits)] * dim), axis=-1).reshape(-1, dim)
    index = np.asarray(curve_index([jnp.asarray(c) for c in cells.T], bits))
    np.testing.assert_array_equal(np.sort(index), np.arange(len(cells)))
    assert np.all(np.abs(np.diff(cells[np.argsort(index)], axis=0)).sum(axis=1) == 1)


TINY = SMALL | {"chains": 2, "warmup": 4}


def draws_of(tree):
    return np.stack([tree.posterior[name].values for name in OU.params])


@pytest.mark.filterwarnings("ignore:Chains have not mixed")
def test_an_interrupted_run_resumes_bit_for_bit(seen, tmp_path, monkeypatch):
    call = lambda draws, **other: df.infer(3, OU, TIMES, seen, PRIOR, draws=draws, **TINY, **other)
    whole = call(12)
    advance, calls = chain_file._Run.advance, []

    def interrupted(run, most):
        calls.append(most)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return advance(run, most)

    with monkeypatch.context() as patch:
        patch.setattr(chain_file._Run, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt) as stopped:
            call(12, checkpoint=tmp_path)
    assert "the same call resumes" in stopped.value.__notes__[0]
    resumed = call(12, checkpoint=tmp_path)
    np.testing.assert_array_equal(draws_of(resumed), draws_of(whole))
    np.testing.assert_array_equal(resumed["hidden"]["states"], whole["hidden"]["states"])
    longer = call(16, checkpoint=tmp_path)
    np.testing.assert_array_equal(draws_of(longer)[..., :12], draws_of(whole))
    with pytest.raises(df.CheckpointError, match="another run. It differs in .*correlation"):
        call(12, checkpoint=tmp_path, correlation=0.5)
    (tmp_path / "chains.safetensors").write_bytes(b"junk")
    with pytest.raises(df.CheckpointError, match="cannot be resumed from.*Delete it"):
        call(12, checkpoint=tmp_path)


class TwoApart(AbstractExactDensity):
    """Two independent components, both of the same Ornstein--Uhlenbeck law."""

    def __init__(self):
        self.params, self.dim, self.noise_dim = OU.params, 2, 2

    def _log_prob(self, state, x, x0):
        each = lambda i: OU._log_prob(state, x[i : i + 1], jnp.append(x0[i], x0[2:]))
        return each(0) + each(1)

    def _from_noise(self, state, noise, x0):
        each = lambda i: OU._from_noise(state, noise[i : i + 1], jnp.append(x0[i], x0[2:]))
        return jnp.concatenate([each(0), each(1)])


@pytest.mark.filterwarnings("ignore:Chains have not mixed")
def test_a_component_that_the_data_never_inform_is_told(seen):
    call = (jr.key(0), TwoApart(), TIMES, seen, PRIOR | {"noise": df.Uniform(0.6, 0.60006)})
    with pytest.warns(UserWarning, match="almost nothing about component 2 of the state"):
        df.infer(*call, draws=100, warmup=20, **SMALL)


BAD_CALLS = {
    "alone": ({"particles": 10}, "`particles`: only for noisy.*pass `observe`"),
    "correlation": (SMALL | {"correlation": 1.0}, "`correlation` must be at least 0 and below 1"),
    "particles": (SMALL | {"particles": 0}, "`particles` must be at least 1"),
    "no law": (SMALL | {"initial": None}, "no law of starts; pass `initial`"),
    "shape": (SMALL | {"observe": lambda x, y: x - y}, "must return one number"),
    "impossible": (
        SMALL | {"observe": lambda x, y: jnp.where(x[0] > 1e3, 0.0, -jnp.inf)},
        "No particle explains observation 0 at t=0.3",
    ),
    "nan": (SMALL | {"observe": lambda x, y: jnp.log(x[0])}, "returned NaN at observation 0"),
}


@pytest.mark.parametrize("options, message", BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_calls_are_refused(seen, options, message):
    with pytest.raises(ValueError, match=message):
        df.infer(jr.key(0), OU, TIMES, seen, PRIOR, **options)


def test_observations_that_are_all_missing_are_refused():
    blank = np.full((LENGTH, 1), np.nan)
    with pytest.raises(ValueError, match="All observations are missing"):
        df.infer(jr.key(0), OU, TIMES, blank, PRIOR, **SMALL)
