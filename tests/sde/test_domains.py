import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.sde.boundaries import boundaries, boundary_message
from diracflow.sde.chart import Chart, chart_for
from diracflow.transition.charted_density import MappedDensity

DOMAINS = {
    "real": df.Real(),
    "logarithm": df.Positive(),
    "square root": df.Positive(0.5, 0.06),
    "linear": df.Positive(1.0, 3.0),
    "reciprocal root": df.Positive(-0.5, 2.0),
    "logistic": df.Interval(-1.0, 3.0),
    "arcsine": df.Interval(-1.0, 3.0, arcsine=True),
}
each_domain = pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)


@each_domain
def test_round_trip_and_order(domain):
    y = jnp.linspace(-6, 6, 241)
    x = domain.from_real(y)
    assert np.all(np.diff(x) > 0)
    # Near an end 4 away from zero a state keeps exp(-6) of its distance to sixteen digits of 4.
    np.testing.assert_allclose(domain.to_real(x), y, rtol=0, atol=1e-12)


@each_domain
def test_log_slope_is_that_of_the_inverse(domain):
    y = jnp.linspace(-5, 5, 11)
    backwards = jax.jit(jax.vmap(jax.grad(domain.from_real)))(y)
    # At zero the two halves of an interval's map meet; its slope is that of both.
    np.testing.assert_allclose(domain.log_slope(domain.from_real(y)), -np.log(backwards), atol=1e-9)


@each_domain
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_nothing_comes_out_outside(domain, dtype):
    y = jnp.asarray([-3e38, -1e4, -200.0, -90.0, -20.0, 0.0, 20.0, 90.0, 200.0, 1e4, 3e38], dtype)
    x = domain.from_real(y)
    assert x.dtype == dtype
    assert np.all(np.isfinite(x))
    assert np.all(domain.contains(x))
    # Ends that are no number of the type: float32 rounds them.
    thirds = df.Interval(1 / 3, 2 / 3)
    inside = np.asarray(thirds.from_real(y), np.float64)
    assert np.all((inside > 1 / 3) & (inside < 2 / 3))


def test_maps_are_logarithms_at_the_ends():
    x = 1e-12
    # r = 4 sqrt(x / c) is 1.6e-5 here, and log(e^r - 1) = log r + r / 2.
    square_root = DOMAINS["square root"]
    np.testing.assert_allclose(
        square_root.to_real(jnp.array(x)), np.log(4) + 0.5 * np.log(x / 0.06), atol=1e-5
    )
    slopes = jnp.exp(DOMAINS["arcsine"].log_slope(jnp.array([-1 + x, 3 - x])))
    np.testing.assert_allclose(slopes, 0.5 / x, rtol=1e-3)


def test_far_inside_the_noise_becomes_constant():
    x = jnp.linspace(0.06, 1.0, 20)
    # phi' sqrt(x) is constant up to 1 / (1 - e^-r), with r at least 4.
    noise = jnp.exp(DOMAINS["square root"].log_slope(x)) * jnp.sqrt(x)
    assert np.ptp(np.asarray(noise)) / noise[-1] < 1.1 * np.exp(-4)


def test_maps_follow_the_noise():
    powers = {"geometric_brownian": 0.0, "cir": 0.5, "ckls": -0.5}
    for name, power in powers.items():
        model = df.models.model(name)
        assert chart_for(model.sde, model.starts, 0.0).maps[0].power == power
    model = df.models.heston()
    real, positive = chart_for(model.sde, model.starts, 0.0).maps
    assert isinstance(real, df.Real)
    assert positive.power == 0.5
    model = df.models.jacobi()
    assert chart_for(model.sde, model.starts, 0.0).maps[0].arcsine
    asked = df.SDE(model.sde._drift, model.sde._diffusion, 1, domain=df.Interval(0, 1, False))
    assert chart_for(asked, model.starts, 0.0).maps[0].arcsine is False


@each_domain
def test_descriptions_make_the_domain_again(domain):
    assert dataclasses.replace(domain).describe() == domain.describe()


def test_geometric_brownian_motion_is_linear_in_logarithms():
    rate, noise = 0.4, 0.7
    equation = Chart(df.models.geometric_brownian(rate, noise).sde, (df.Positive(),)).equation()
    for y in (-3.0, 0.1, 2.0):
        drift = equation.drift(jnp.array(0.0), jnp.array([y]))
        np.testing.assert_allclose(drift, [rate - noise**2 / 2], rtol=1e-12)
        np.testing.assert_allclose(
            equation.diffusion(jnp.array(0.0), jnp.array([y])), [[noise]], rtol=1e-12
        )


CHARTS = {
    "heston": (df.models.heston().sde, (df.Real(), df.Positive(0.5, 0.09))),
    "lotka_volterra": (df.models.lotka_volterra().sde, (df.Positive(), df.Positive(0.25, 0.5))),
    "jacobi": (df.models.jacobi().sde, (df.Interval(0, 1, arcsine=True),)),
    "ckls": (df.models.ckls().sde, (df.Positive(-0.5, 0.07),)),
}


def generator(sde, f, x):
    """The backward operator by autodiff, with nothing of Itô's formula in it."""
    slope, curvature = jax.grad(f)(x), jax.hessian(f)(x)
    t = jnp.array(0.3)
    return sde.drift(t, x) @ slope + 0.5 * jnp.sum(sde.covariance(t, x) * curvature)


@pytest.mark.parametrize("sde, maps", CHARTS.values(), ids=CHARTS)
def test_generators_agree(sde, maps, getkey):
    chart = Chart(sde, maps)
    y, direction = jr.normal(getkey(), (2, sde.dim))

    def f(y):
        return jnp.sin(y @ direction) + jnp.sum(y**3)

    @jax.jit
    def both(y):
        plain = generator(sde, lambda x: f(chart.to_real(x)), chart.from_real(y))
        return generator(chart.equation(), f, y), plain

    # Exact derivatives on both sides.
    np.testing.assert_allclose(*both(y), rtol=1e-8)


def test_exact_density_solves_the_mapped_equation():
    model = df.models.cir(0.5, 0.06, 0.15)
    chart = Chart(model.sde, (df.Positive(0.5, 0.06),))
    density, y0 = MappedDensity(model.exact, chart), chart.to_real(jnp.array([0.05]))
    y, t = y0 + 0.4, jnp.array(0.3)

    def log_prob(y, t):
        return density._log_prob(density._at_time(t), y, y0)

    @jax.jit
    def both(y, t):
        rate = df.log_density_rate(chart.equation(), lambda y: log_prob(y, t), t, y)
        return rate, jax.grad(log_prob, 1)(y, t)

    # The Bessel function in the exact density is a series, good to some ten digits.
    np.testing.assert_allclose(*both(y, t), rtol=1e-6)


ENDS = {
    "cir far": (df.models.cir(3.0, 0.3, 0.2), [False]),
    "cir at the limit": (df.models.cir(0.5, 1.0, 1.0), [False]),
    "cir just below": (df.models.cir(0.495, 1.0, 1.0), [True]),
    "cir": (df.models.cir(0.5, 0.06, 0.4), [True]),
    # A natural end, whatever the drift.
    "falling price": (df.models.geometric_brownian(-2.0, 0.3), [False]),
    "ckls": (df.models.ckls(), [False]),
    "ckls near a square root": (df.models.ckls(0.1, 0.1, 0.5, 0.4), [True]),
    "jacobi": (df.models.jacobi(), [False, False]),
    "jacobi at one end": (df.models.jacobi(1.0, 0.9, 0.6), [False, True]),
    "heston": (df.models.heston(), [False]),
    "heston in the wild": (df.models.heston(1.0, 0.04, 0.5), [True]),
    "lotka_volterra": (df.models.lotka_volterra(), [False, False]),
}


@pytest.mark.parametrize("model, accessible", ENDS.values(), ids=ENDS)
def test_fellers_test(model, accessible):
    found = boundaries(model.sde, model.starts, 0.0, 1.0)
    assert [row["accessible"] for row in found] == accessible
    assert (boundary_message(found) is not None) == any(accessible)


def test_fellers_index_is_in_the_message():
    model = df.models.cir(0.5, 0.06, 0.3)  # 2 * 0.5 * 0.06 / 0.3**2
    found = boundaries(model.sde, model.starts, 0.0, 1.0)
    np.testing.assert_allclose(found[0]["index"], 2 / 3, rtol=1e-6)
    assert "component 0 at 0" in boundary_message(found)
    assert "0.667" in boundary_message(found)


def cir_on(domain):
    sde = df.models.cir().sde
    return df.SDE(sde._drift, sde._diffusion, 1, domain=domain)


BAD_DOMAINS = {
    "reversed": (lambda: df.Interval(2.0, 1.0), "low < high"),
    "empty": (lambda: df.Interval(1.0, 1.0), "low < high"),
    "infinite": (lambda: df.Interval(0.0, np.inf), "finite"),
    "words": (lambda: df.Interval("a", "b"), "must be one finite number"),
    "scale": (lambda: df.Positive(0.5, -1.0), "`scale` must be positive"),
    "string": (lambda: cir_on("positive"), "`domain` must be"),
    "class": (lambda: cir_on(df.Positive), "`domain` must be"),
    "numbers": (lambda: cir_on((0.0, 1.0)), "`domain` must be"),
    "too many": (lambda: cir_on((df.Real(), df.Positive())), "2 components; the SDE has 1"),
}


@pytest.mark.parametrize("make, message", BAD_DOMAINS.values(), ids=BAD_DOMAINS)
def test_bad_domains_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_one_domain_serves_all_components():
    assert [part.ends for part in df.models.lotka_volterra().sde.domain] == [(0, np.inf)] * 2
    assert [part.ends for part in df.models.brownian(2).sde.domain] == [(-np.inf, np.inf)] * 2


BAD_STARTS = {
    "normal on the half line": (df.models.cir(), df.Normal(0.3, 0.1)),
    "beyond an interval": (df.models.jacobi(), df.Uniform(0.5, 1.5)),
    "one component": (df.models.heston(), df.Normal(0.1, 0.1)),
    "swapped": (df.models.heston(), df.Product(df.LogNormal(-2.4, 0.2), df.Normal(0.0, 0.1))),
}


@pytest.mark.parametrize("model, starts", BAD_STARTS.values(), ids=BAD_STARTS)
def test_starts_outside_the_domain_are_refused(model, starts, getkey):
    with pytest.raises(ValueError, match="`starts` must lie inside the domain: component"):
        df.learn(model.sde, starts, 1.0, key=getkey())
