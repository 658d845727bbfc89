"""Densities learned over parameters of the SDE."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.density.model_file import read_header
from helpers import still_density

FAMILY = df.models.ornstein_uhlenbeck_family()
TRUE = {"rate": 1.2, "level": 0.1, "noise": 0.6}
X, X0 = np.array([0.2]), np.array([0.4])


@pytest.fixture(scope="module")
def learned():
    """From Euler's step, so that there is something to learn for every parameter."""
    return df.learn(
        *(FAMILY.sde, FAMILY.starts, 0.3),
        key=jr.key(0),
        params=FAMILY.params,
        source="euler",
        preset="quick",
        tolerance=1e-2,
        hidden=4,
        layers=2,
        certify=False,
    )


@pytest.fixture(scope="module")
def given():
    g = np.asarray(df.Product(FAMILY.starts, *FAMILY.params.values()).sample(jr.key(5), (32,)))
    return {"x0": g[:, :1], "params": dict(zip(TRUE, g[:, 1:].T, strict=True))}


def test_the_flow_learns_what_the_source_lacks_over_the_box(learned, given):
    times = [0.03, 0.3]
    found, before = (
        df.errors(d, FAMILY.exact, times, **given).squared_l2.mean(axis=1)
        for d in (learned, learned.source_only())
    )
    # The budget of 1e-2 nats allows for 1e-4 of squared error; so small a flow leaves 2e-4.
    assert np.all(found < 1e-3)
    assert found[-1] < 0.05 * before[-1]


@pytest.mark.slow
def test_linear_families_need_no_flow(given):
    density = still_density(FAMILY)
    assert density.provenance.plan.source == "moments"
    found = df.errors(density, FAMILY.exact, [1e-4, 0.1, 1.0], **given)
    # Sums of squared rounding errors: what is solved is linear.
    assert np.max(found.squared_l2) < 1e-20


def test_parameters_can_be_searched_for_under_jit(learned):
    times, states = np.array([0.0, 0.2, 0.5]), np.array([[0.3], [0.1], [0.4]])

    def log_likelihood(rate):
        return df.log_likelihood(learned, times, states, {**TRUE, "rate": rate})

    found, slope = jax.jit(jax.value_and_grad(log_likelihood))(1.2)
    np.testing.assert_allclose(found, log_likelihood(1.2), rtol=1e-10)
    difference = (log_likelihood(1.2 + 1e-5) - log_likelihood(1.2 - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, difference, rtol=1e-5)
    # Starts that are known are still looked at, though the parameters are not.
    with pytest.warns(df.OutsideWarning, match="x0"):
        jax.jit(lambda r: learned.log_prob(X, 0.1, [[40.0]], {**TRUE, "rate": r}))(1.2)


def test_the_point_mass_at_the_start_for_every_parameter(learned, given):
    tau = 1e-8
    draws = np.asarray(learned.sample(jr.key(0), tau, given["x0"], (200,), given["params"]))
    sizes = np.abs(draws - given["x0"]) / given["params"]["noise"][:, None]
    assert np.max(sizes) < 6 * np.sqrt(tau)


def test_gradients_in_parameters(learned):
    found, exact = (
        jax.grad(lambda p, d=d: d.log_prob(X, 0.3, X0, p))(TRUE) for d in (learned, FAMILY.exact)
    )
    for name in TRUE:
        # Of the order of the tolerance over the width of the box.
        assert abs(found[name] - exact[name]) < 0.05


def test_parameters_broadcast(learned):
    params = {**TRUE, "rate": np.array([[0.6], [1.9]]), "noise": np.array([0.4, 0.5, 0.9])}
    values = learned.log_prob(X, 0.2, X0, params)
    assert values.shape == (2, 3)
    alone = learned.log_prob(X, 0.2, X0, {**TRUE, "rate": 1.9, "noise": 0.4})
    np.testing.assert_allclose(values[1, 0], alone, rtol=1e-12)
    frozen = learned.at(0.2, X0, TRUE)
    np.testing.assert_allclose(frozen.logpdf(X), learned.log_prob(X, 0.2, X0, TRUE))
    assert learned.residual(X, 0.2, X0, params).shape == (2, 3)


@pytest.mark.slow
def test_likelihood_and_its_maximum(learned):
    times = np.linspace(0, 30, 151)
    keys = jr.split(jr.key(7), len(times) - 1)
    states = [X0]
    for key in keys:
        states.append(np.asarray(FAMILY.exact.sample(key, 0.2, states[-1], params=TRUE)))
    states = np.stack(states)
    found, exact = (
        df.log_likelihood(density, times, states, TRUE) for density in (learned, FAMILY.exact)
    )
    # 150 terms, each off by less than the tolerance of 1e-2 nats and mostly not to one side.
    assert abs(found - exact) < 0.3
    box = {"rate": (0.5, 2.0), "level": (-0.5, 0.5), "noise": (0.3, 1.0)}
    best, best_exact = (
        df.maximum_likelihood(density, times, states, TRUE, bounds=box)
        for density in (learned, FAMILY.exact)
    )
    assert best.converged
    for name, error in best_exact.standard_errors.items():
        # Small beside what the data can tell.
        assert abs(best.params[name] - best_exact.params[name]) < 0.2 * error


def test_certificate_and_coverage_take_parameters(learned):
    params = {**TRUE, "noise": np.array([0.4, 0.9])}
    found = learned.certificate(jr.key(1), 0.3, X0, 32, params)
    truth = df.errors(learned, FAMILY.exact, [0.3], np.stack([X0, X0]), params=params)
    assert found.bound.shape == (2,)
    assert np.all(truth.total_variation[0] <= found.bound + 5 * found.stderr)
    # In a box all parameters count alike, so what is left is the start.
    np.testing.assert_allclose(
        learned.coverage(X0, params), FAMILY.starts.coverage(X0) * np.ones(2), rtol=1e-12
    )
    assert not np.any(learned.outside(X0, params))
    beyond = jax.jit(lambda p: learned.outside(X0, p))({**TRUE, "rate": 3.0})
    assert bool(beyond)


def test_round_trip_keeps_parameters_and_laws(learned, tmp_path):
    path = tmp_path / "model.dflow"
    learned.save(path)
    again = df.load(path)
    assert again.params == learned.params
    assert again.param_bounds == {"rate": (0.5, 2.0), "level": (-0.5, 0.5), "noise": (0.3, 1.0)}
    np.testing.assert_array_equal(
        again.log_prob(X, 0.2, X0, TRUE), learned.log_prob(X, 0.2, X0, TRUE)
    )
    assert [law["name"] for law in read_header(path)["params"]] == [*TRUE]
    with pytest.raises(df.ModelFileError, match=r"parameters \['rate', 'level', 'noise'\]"):
        df.load(path, sde=FAMILY.sde.at(TRUE))


@pytest.mark.slow
def test_propagation_and_bridges_take_parameters(learned):
    draws = np.asarray(df.Normal(0.0, 0.5).sample(jr.key(2), (500,)))
    law, exact = (df.propagate(d, draws, 0.3, params=TRUE) for d in (learned, FAMILY.exact))
    # As far off as the density itself.
    assert abs(law.log_prob(X) - exact.log_prob(X)) < 0.02
    assert law.outside == 0.0
    assert law.sample(jr.key(3), (5,)).shape == (5, 1)
    found = df.bridge(jr.key(0), learned, X0, X, 0.3, 20, 400, params=TRUE)
    # Unbiased for the chain of Euler steps, whose density is off by first order in steps of 1/66.
    assert abs(found.log_density - float(FAMILY.exact.log_prob(X, 0.3, X0, TRUE))) < 0.05
    assert found.outside == 0.0


@pytest.mark.slow
def test_filters_take_parameters(learned):
    observe = lambda x, y: -0.5 * (y - x[0]) ** 2 / 0.04
    data = ([0.2, 0.5], [0.3, 0.1], observe, 500)
    options = {"initial": FAMILY.starts, "params": TRUE, "proposal": "bootstrap"}
    found, exact = (
        df.filter(jr.key(0), density, *data, **options) for density in (learned, FAMILY.exact)
    )
    # The same noise through nearly the same law.
    np.testing.assert_allclose(found.means, exact.means, atol=0.02)


def test_guard_of_other_laws():
    wide = {**FAMILY.params, "level": df.Normal(0.0, 0.1)}
    model = df.models.Model("wide", FAMILY.sde, FAMILY.starts, 1.0, None, wide)
    density = still_density(model, source="euler")
    with pytest.warns(df.OutsideWarning, match=r"level=2.*wider laws"):
        density.log_prob(X, 0.5, X0, {**TRUE, "level": 2.0})
    with pytest.raises(ValueError, match="outside the law"):
        density.log_prob(X, 0.5, X0, {**TRUE, "level": 2.0}, strict=True)
    assert bool(density.outside(X0, {**TRUE, "level": 2.0}))


BAD_QUERIES = {
    "none": (None, "depends on the parameters"),
    "missing": ({"rate": 1.0}, "`level`, `noise` missing"),
    "unknown": ({**TRUE, "speed": 1.0}, "has no `speed`"),
    "beyond the box": ({**TRUE, "rate": 2.5}, r"`rate` must lie in \[0.5, 2\]"),
}


@pytest.mark.parametrize("params, message", BAD_QUERIES.values(), ids=BAD_QUERIES)
def test_bad_queries_are_refused(learned, params, message):
    for query in (
        lambda: learned.log_prob(X, 0.2, X0, params),
        lambda: learned.coverage(X0, params),
        lambda: learned.certificate(jr.key(0), 0.2, X0, params=params),
        lambda: df.bridge(jr.key(0), learned, X0, X, 0.2, params=params),
    ):
        with pytest.raises(ValueError, match=message):
            query()


PLAIN = df.models.brownian(1).sde
BAD_LAWS = {
    "none": (FAMILY.sde, None, "depends on the parameters"),
    "of nothing": (PLAIN, FAMILY.params, "no parameters"),
    "two numbers": (
        FAMILY.sde,
        {**FAMILY.params, "rate": df.Uniform([1.0, 1.0], [2.0, 2.0])},
        "`rate` must have a law of one number",
    ),
    "a number": (FAMILY.sde, {**FAMILY.params, "rate": 1.0}, "law of one number.*1.0"),
    "no noise": (
        FAMILY.sde,
        {**FAMILY.params, "noise": df.Normal(0.0, 1e-320)},
        r"reach every component.*rate=",
    ),
}


@pytest.mark.parametrize("sde, params, message", BAD_LAWS.values(), ids=BAD_LAWS)
def test_bad_laws_are_refused(sde, params, message):
    with pytest.raises(ValueError, match=message):
        df.learn(sde, df.Normal(), 1.0, key=jr.key(0), params=params)


def rate_drift(t, x, p):
    return -p["rate"] * x


def unit(t, x, p):
    return jnp.eye(1)


BAD_FAMILIES = {
    "no p": (lambda t, x: -x, unit, ("rate",), r"`drift\(t, x, p\)`.*three arguments"),
    "unknown name": (lambda t, x, p: p["speed"] * x, unit, ("rate",), "KeyError: 'speed'"),
    "names missing": (rate_drift, unit, (), r"`drift\(t, x\)`.*if `params` names any"),
    "a string": (rate_drift, unit, "rate", "distinct names"),
    "twice": (rate_drift, unit, ("rate", "rate"), "distinct names"),
}


@pytest.mark.parametrize(
    "drift, diffusion, names, message", BAD_FAMILIES.values(), ids=BAD_FAMILIES
)
def test_bad_families_are_refused(drift, diffusion, names, message):
    with pytest.raises(ValueError, match=message):
        df.SDE(drift, diffusion, 1, params=names)


def test_members_of_a_family():
    sde = df.SDE(rate_drift, unit, 1, params=("rate",))
    assert sde.params == ("rate",)
    member = sde.at({"rate": 3.0})
    assert member.params == ()
    np.testing.assert_array_equal(member.drift(0.0, jnp.array([2.0])), [-6.0])
    with pytest.raises(ValueError, match=r"sde.at"):
        sde.drift(0.0, jnp.array([2.0]))
    with pytest.raises(ValueError, match="one number"):
        sde.at({"rate": np.ones(2)})
    with pytest.raises(ValueError, match="no parameters"):
        member.at({"rate": 1.0})
