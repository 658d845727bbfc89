"""The bound must hold, must be useful, and must notice."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.density.summary import SHARES, certificate_table


def learned_linear(**changes):
    model = df.models.ornstein_uhlenbeck(1, rate=0.7, noise=0.8)
    settings = {"preset": "quick", "layers": 2, "hidden": 2, "source": "euler", "certify": False}
    density = df.learn(model.sde, model.starts, 0.5, key=jr.key(1), **settings | changes)
    return density, model


@pytest.fixture(scope="module", params=["benes", pytest.param("ou", marks=pytest.mark.slow)])
def judged(request, trained, benes):
    """A learned density and its model."""
    return (trained, benes) if request.param == "benes" else learned_linear()


@pytest.mark.slow
def test_the_residual_is_that_of_the_deployed_density(trained, getkey):
    x0 = 0.5 * jr.normal(getkey(), (20, 2))
    t = trained.horizon * jr.uniform(getkey(), (20,), minval=0.01)
    x = trained.sample(getkey(), t, x0)

    def direct(x, t, x0):
        rate = df.log_density_rate(trained.sde, lambda y: trained.log_prob(y, t, x0), t, x)
        return jax.grad(trained.log_prob, argnums=1)(x, t, x0) - rate

    # Both terms are of order 1 / t, up to 300, and known to rounding.
    np.testing.assert_allclose(
        trained.residual(x, t, x0), jax.jit(jax.vmap(direct))(x, t, x0), atol=1e-8
    )


def test_the_bound_holds_and_is_useful(judged, getkey):
    density, model = judged
    times = density.horizon * np.geomspace(0.01, 1.0, 10)
    x0 = density.starts.sample(getkey(), (10,))
    found = density.certificate(getkey(), times[:, None], x0, samples=64)
    true = df.errors(density, model.exact, times, x0, key=getkey()).total_variation
    assert found.bound.shape == found.stderr.shape == true.shape == (10, 10)
    assert np.all(true <= found.bound + 3 * found.stderr)
    assert np.median(found.bound / true) < 30


@pytest.mark.slow
def test_nothing_to_bound_where_the_source_is_exact(getkey):
    model = df.models.brownian(1)
    settings = {"preset": "quick", "layers": 2, "hidden": 2, "certify": False}
    density = df.learn(model.sde, model.starts, 1.0, key=getkey(), **settings)
    # Splines of the ensemble leave a forcing of rounding size.
    assert density.certificate(getkey(), 1.0, np.zeros(1)).bound < 1e-6


@pytest.mark.slow
def test_a_disturbed_path_is_noticed(trained, benes, getkey):
    rng = np.random.default_rng(0)
    thetas = trained.trajectory.thetas.copy()
    thetas[1:] += 0.02 * rng.normal(size=thetas[1:].shape)
    disturbed = eqx.tree_at(lambda d: d.trajectory.thetas, trained, thetas)
    x0 = np.zeros(2)
    bounds = [d.certificate(jr.key(0), 0.3, x0).bound for d in (trained, disturbed)]
    assert bounds[1] > 5 * bounds[0]
    true = df.errors(disturbed, benes.exact, [0.3], x0[None]).total_variation
    assert bounds[1] > true


@pytest.mark.slow
def test_too_few_points_are_noticed():
    few, model = learned_linear(samples=16)  # for 106 parameters
    enough, _ = learned_linear()  # 256 points
    x0 = np.linspace(-1.5, 1.5, 5)[:, None]
    bounds = [d.certificate(jr.key(0), 0.5, x0, samples=64).bound for d in (few, enough)]
    # Over two seeds the mean bound grew by 2.9 and 4.7.
    assert np.mean(bounds[0]) > 2 * np.mean(bounds[1])
    assert np.all(df.errors(few, model.exact, [0.5], x0).total_variation < bounds[0])


def test_starts_outside_are_noticed(trained):
    x0 = np.array([[0.0, 0.0], [6.0, 6.0]])
    inside, outside = trained.certificate(jr.key(0), trained.horizon, x0).bound
    assert outside > 3 * inside
    np.testing.assert_allclose(trained.coverage(x0), [1.0, 0.0], atol=1e-12)


@pytest.mark.slow
def test_standard_errors_are_honest(trained):
    x0, t = np.zeros(2), trained.horizon
    found = [trained.certificate(jr.key(k), t, x0, samples=16) for k in range(30)]
    spread = np.std([c.bound for c in found], ddof=1)
    # Thirty values know their spread to 13 percent, and each estimate of it a little less well.
    assert 0.5 < spread / np.mean([c.stderr for c in found]) < 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((1.0, np.zeros(2)), r"`t` must lie in \(0, 0.3\]"),
        ((0.1, np.full(2, np.nan)), "`x0` contains NaN"),
        ((0.1, np.zeros(3)), "of length 2"),
        ((0.1, np.zeros(2), 1), "`samples` must be at least 2"),
        ((0.1, np.zeros(2), 0), "`samples` must be at least 2"),
        ((np.full(3, 0.1), np.zeros((2, 2))), "broadcast"),
    ],
)
def test_bad_questions_are_refused(arguments, message, trained):
    with pytest.raises(ValueError, match=message):
        trained.certificate(jr.key(0), *arguments)


def test_coverage_works_under_jit(trained):
    x0 = jnp.array([0.75, 0.0])
    # One standard deviation out in two dimensions.
    np.testing.assert_allclose(jax.jit(trained.coverage)(x0), np.exp(-0.5), rtol=1e-12)


def test_the_table_that_files_carry(trained, tmp_path):
    table = certificate_table(trained, jr.key(0))
    assert [row["start"] for row in table] == ["centre", "edge"] * len(SHARES)
    assert table[-1]["t"] == trained.horizon
    # What is left over adds up: bounds grow with time from either start.
    assert np.all(np.diff([row["bound"] for row in table[::2]]) > 0)
    # The edge is where one start in twenty is further out.
    np.testing.assert_allclose(trained.coverage(np.array(table[1]["x0"])), 0.05, rtol=1e-6)
    trained.with_provenance(certificate=table).save(tmp_path / "model.dflow")
    assert df.load(tmp_path / "model.dflow").provenance.certificate == table
