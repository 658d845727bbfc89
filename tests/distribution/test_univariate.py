"""One-dimensional laws against their formulas, to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from scipy.integrate import quad

import diracflow as df

X0, T = 0.7, 0.8
OU = {"rate": 0.8, "level": 0.3, "noise": 0.6}
GBM = {"rate": 0.1, "noise": 0.5}
CIR = {"rate": 1.5, "level": 0.4, "noise": 0.5}


class Mixture:
    """A Beneš process of one component: two normal laws."""

    def __init__(self):
        up = np.exp(X0) / (2 * np.cosh(X0))
        self.parts = [(up, st.norm(X0 + T, np.sqrt(T))), (1 - up, st.norm(X0 - T, np.sqrt(T)))]

    def __getattr__(self, name):
        return lambda x: sum(w * getattr(law, name)(x) for w, law in self.parts)

    def mean(self):
        return sum(w * law.mean() for w, law in self.parts)

    def var(self):
        second = sum(w * (law.var() + law.mean() ** 2) for w, law in self.parts)
        return second - self.mean() ** 2


def ou():
    decay = np.exp(-OU["rate"] * T)
    spread = OU["noise"] * np.sqrt((1 - decay**2) / (2 * OU["rate"]))
    return st.norm(OU["level"] + (X0 - OU["level"]) * decay, spread)


def gbm():
    mean = np.log(X0) + (GBM["rate"] - GBM["noise"] ** 2 / 2) * T
    return st.lognorm(GBM["noise"] * np.sqrt(T), scale=np.exp(mean))


def cir():
    decay = np.exp(-CIR["rate"] * T)
    c = 2 * CIR["rate"] / (CIR["noise"] ** 2 * (1 - decay))
    freedom = 4 * CIR["rate"] * CIR["level"] / CIR["noise"] ** 2
    return st.ncx2(freedom, 2 * c * X0 * decay, scale=1 / (2 * c))


CASES = {
    "ou": (df.ExactOrnsteinUhlenbeck(), OU, ou, 1e-12),
    "gbm": (df.ExactGeometricBrownian(), GBM, gbm, 1e-12),
    # The Bessel function of the density is accurate to 4e-12, SciPy's quantiles to 1e-9.
    "cir": (df.ExactCIR(), CIR, cir, 1e-10),
    "benes": (df.models.benes(dim=1).exact, None, Mixture, 1e-12),
}


@pytest.fixture(params=CASES)
def case(request):
    density, params, formula, accuracy = CASES[request.param]
    return density.at(T, [X0], params), formula(), accuracy


def test_moments(case):
    law, formula, accuracy = case
    np.testing.assert_allclose(law.mean(), [formula.mean()], rtol=accuracy)
    np.testing.assert_allclose(law.var(), [formula.var()], rtol=10 * accuracy)
    np.testing.assert_allclose(law.std() ** 2, law.var(), rtol=1e-14)
    np.testing.assert_allclose(law.cov(), [[formula.var()]], rtol=10 * accuracy)
    value, error = law.expect(lambda x: x[0] ** 2)
    np.testing.assert_allclose(value, formula.var() + formula.mean() ** 2, rtol=10 * accuracy)
    assert error < 1e-10


def test_distribution_functions(case):
    law, formula, accuracy = case
    x = formula.mean() + np.sqrt(formula.var()) * np.array([-1.2, -0.5, 0.0, 0.8, 2.5, 5.0])
    np.testing.assert_allclose(law.cdf(x[:, None]), formula.cdf(x), rtol=accuracy)
    np.testing.assert_allclose(law.sf(x[:, None]), formula.sf(x), rtol=10 * accuracy)
    np.testing.assert_allclose(law.logsf(x[:, None]), np.log(formula.sf(x)), rtol=accuracy)
    q = np.array([1e-6, 0.03, 0.5, 0.9, 0.99999])
    np.testing.assert_allclose(formula.cdf(np.asarray(law.ppf(q))[:, 0]), q, rtol=10 * accuracy)
    np.testing.assert_allclose(law.cdf(law.isf(q)), 1 - q, rtol=1e-12)
    low, high = law.interval(0.9)
    np.testing.assert_allclose(law.cdf(high) - law.cdf(low), 0.9, rtol=1e-12)
    np.testing.assert_allclose(law.cdf(law.median()), 0.5, rtol=1e-12)


def test_entropy_of_cir_is_the_integral_of_the_noncentral_chi_square_density():
    """By SciPy's density and adaptive quadrature; the entropy has no closed form."""
    law, formula = df.ExactCIR().at(T, [X0], CIR), cir()
    integrand = lambda x: -formula.pdf(x) * formula.logpdf(x)
    ends = formula.ppf([1e-14, 1 - 1e-14])
    value, error = quad(integrand, *ends, epsabs=1e-12, epsrel=1e-12, limit=200)
    assert error < 1e-10
    np.testing.assert_allclose(law.entropy(), value, rtol=1e-9)
    other = df.ExactCIR().at(T, [X0], CIR | {"level": 0.5})
    gap = lambda x: formula.pdf(x) * (formula.logpdf(x) - float(other.logpdf([x])))
    np.testing.assert_allclose(law.kl(other), quad(gap, *ends, limit=50)[0], rtol=1e-7)


@pytest.mark.parametrize("name", ["ou", "gbm", "benes"])
def test_entropy_is_the_integral(name):
    density, params, _, _ = CASES[name]
    law = density.at(T, [X0], params)
    x = np.linspace(*np.asarray(law.ppf([1e-15, 1 - 1e-15]))[:, 0], 200_001)
    p, log_p = np.asarray(law.pdf(x[:, None])), np.asarray(law.logpdf(x[:, None]))
    np.testing.assert_allclose(law.entropy(), -np.trapezoid(p * log_p, x), rtol=1e-8)
    assert abs(law.kl(law)) < 1e-14


def test_entropy_has_the_known_values():
    law = df.ExactOrnsteinUhlenbeck().at(T, [X0], OU)
    np.testing.assert_allclose(law.entropy(), ou().entropy(), rtol=1e-12)
    law = df.ExactGeometricBrownian().at(T, [X0], GBM)
    np.testing.assert_allclose(law.entropy(), gbm().entropy(), rtol=1e-12)
    other = df.ExactGeometricBrownian().at(T, [X0], {"rate": 0.3, "noise": 0.5})
    gap = 0.2 * T / (0.5 * np.sqrt(T))
    np.testing.assert_allclose(law.kl(other), gap**2 / 2, rtol=1e-12)


FUNCTIONS = {
    "mean": lambda law: law.mean()[0],
    "cdf": lambda law: law.cdf(jnp.array([0.5])),
    "ppf": lambda law: law.ppf(0.3)[0],
    "entropy": lambda law: law.entropy(),
    "expect": lambda law: law.expect(lambda x: jnp.maximum(x[0] - 0.5, 0.0) ** 2).value,
}


@pytest.mark.parametrize(
    "name, function", [("ou", name) for name in FUNCTIONS] + [("benes", "ppf")]
)
def test_derivatives(name, function):
    """In time, start and a parameter, if there is any."""
    density, params, _, _ = CASES[name]
    step = 1e-4

    def value(s):
        moved = params and params | {"noise": params["noise"] + s[2]}
        law = density.at(T + s[0], s[1:2] + X0, moved)
        return FUNCTIONS[function](law)

    shifts = step * np.eye(3)
    expected = [(value(s) - value(-s)) / (2 * step) for s in shifts]
    np.testing.assert_allclose(jax.grad(value)(jnp.zeros(3)), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["ou", "gbm", "benes"])
def test_the_density_is_the_derivative_of_the_distribution_function(name):
    density, params, formula, _ = CASES[name]
    law, formula = density.at(T, [X0], params), formula()
    x = jnp.array([formula.mean()])
    np.testing.assert_allclose(jax.grad(law.cdf)(x), law.pdf(x)[None], rtol=1e-11)
    q = jnp.array(0.3)
    slope = jax.grad(lambda q: law.ppf(q)[0])(q)
    np.testing.assert_allclose(slope, 1 / law.pdf(law.ppf(q)), rtol=1e-10)


def test_batches_are_laws_one_by_one():
    density, x0 = CASES["benes"][0], np.array([[0.5], [0.7], [1.0]])
    law, one = density.at(0.8, x0), density.at(0.8, [1.0])
    assert law.batch_shape == (3,)
    assert law.cov().shape == (3, 1, 1)
    np.testing.assert_allclose(law.mean()[2], one.mean(), rtol=1e-12)
    np.testing.assert_allclose(law.entropy()[2], one.entropy(), rtol=1e-11)
    assert law.cdf(np.full((5, 1, 1), 0.4)).shape == (5, 3)
    np.testing.assert_allclose(law.cdf([0.4])[2], one.cdf([0.4]), rtol=1e-11)
    np.testing.assert_allclose(law.ppf(0.2)[2], one.ppf(0.2), rtol=1e-11)
    law = CASES["ou"][0].at([0.3, 0.8], x0[:, None], OU)
    assert law.batch_shape == (3, 2)
    assert law.expect(lambda x: jnp.stack([x[0], x[0] ** 2])).value.shape == (3, 2, 2)
    assert law.cdf(np.zeros((5, 1, 1, 1))).shape == (5, 3, 2)
    assert law.ppf(np.full((5, 1, 1), 0.4)).shape == (5, 3, 2, 1)
    assert law.median().shape == (3, 2, 1)


def test_outside_the_domain():
    law = df.ExactGeometricBrownian().at(T, [X0], GBM)
    np.testing.assert_array_equal(law.cdf([[-1.0], [0.0], [np.inf]]), [0, 0, 1])
    law = CASES["benes"][0].at(T, [X0])
    np.testing.assert_array_equal(law.sf([[-np.inf], [np.inf]]), [1, 0])


def test_under_jit():
    density = CASES["benes"][0]
    inside = jax.jit(lambda t: density.at(t, [X0]).ppf(0.4))(T)
    np.testing.assert_allclose(inside, density.at(T, [X0]).ppf(0.4), rtol=1e-12)


def test_bad_levels_and_functions():
    law = df.ExactOrnsteinUhlenbeck().at(T, [X0], OU)
    for q in (0.0, 1.0, -0.2, 90, np.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            law.ppf(q)
    with pytest.raises(ValueError, match="`confidence` must lie strictly between 0 and 1"):
        law.interval(95)
    with pytest.raises(ValueError, match="one state of shape \\(1,\\)"):
        law.expect(lambda x: x[:, 0])
    # JAX itself would return the last component.
    with pytest.raises(ValueError, match=r"shape \(1,\); index 1 is out of bounds"):
        law.expect(lambda x: x[1])
    with pytest.raises(ValueError, match="could not be traced"):
        law.expect(3.0)
    with pytest.raises(ValueError, match=r"against the shape \(3,\).*q\[:, None\]"):
        df.ExactOrnsteinUhlenbeck().at([0.1, 0.2, 0.3], [X0], OU).ppf([0.1, 0.2])
    with pytest.raises(ValueError, match="between 0 and 1"):
        law.isf(1.5)
    with pytest.raises(ValueError, match="returned NaN at the state"):
        law.expect(lambda x: jnp.sqrt(x[0]))
    with pytest.raises(ValueError, match="real numbers"):
        law.expect(lambda x: x * 1j)
    with pytest.raises(ValueError, match="returned an infinite value at the state"):
        law.expect(lambda x: jnp.where(x[0] > 0, jnp.inf, 0.0))
    with pytest.raises(ValueError, match="`points` and `key`"):
        law.mean(samples=3)
    for mistake in ({"points": 0}, {"points": 1.5}, {"key": "a"}):
        with pytest.raises(ValueError, match=f"`{next(iter(mistake))}` must be"):
            law.mean(**mistake)
    for order in (-1, 0.5):
        with pytest.raises(ValueError, match="`order` must be"):
            law.moment(order)


def test_greeks_in_the_parameters_of_a_geometric_brownian_motion():
    """Against the formula of Black and Scholes, without discounting.

    The payoff has a kink inside one panel, so that its error decreases with the panel's width; the
    bar for Greeks is 1e-3.
    """
    density, strike, noise = df.ExactGeometricBrownian(), 0.75, GBM["noise"]

    def price(params, t, x0):
        payoff = lambda x: jnp.maximum(x[0] - strike, 0.0)
        return density.at(t, x0, params).expect(payoff).value

    value, (by_params, by_t, by_x0) = jax.value_and_grad(price, (0, 1, 2))(GBM, T, jnp.array([X0]))
    forward, spread = X0 * np.exp(GBM["rate"] * T), noise * np.sqrt(T)
    upper = np.log(forward / strike) / spread + spread / 2
    above, at = st.norm.cdf(upper), st.norm.pdf(upper)
    expected = {
        "price": (value, forward * above - strike * st.norm.cdf(upper - spread)),
        "delta": (by_x0[0], forward / X0 * above),
        "vega": (by_params["noise"], forward * at * np.sqrt(T)),
        "rho": (by_params["rate"], T * forward * above),
        "theta": (by_t, forward * (GBM["rate"] * above + at * noise / (2 * np.sqrt(T)))),
    }
    for name, (found, formula) in expected.items():
        np.testing.assert_allclose(found, formula, rtol=1e-3, err_msg=name)


def test_derivatives_of_cir_moments_in_its_parameters():
    """Draws are not differentiable; the derivatives pass through the density."""
    decay = lambda p: jnp.exp(-p["rate"] * T)
    mean = lambda p: p["level"] + (X0 - p["level"]) * decay(p)
    second = lambda p: X0 * decay(p) * (1 - decay(p)) + p["level"] / 2 * (1 - decay(p)) ** 2
    variance = lambda p: p["noise"] ** 2 / p["rate"] * second(p)
    law = lambda p: df.ExactCIR().at(T, [X0], p)
    for found, formula in (
        (lambda p: law(p).mean()[0], mean),
        (lambda p: law(p).var()[0], variance),
    ):
        slopes, expected = jax.grad(found)(CIR), jax.grad(formula)(CIR)
        for name in CIR:
            np.testing.assert_allclose(slopes[name], expected[name], rtol=1e-9, atol=1e-12)
