"""Prices and Greeks under Heston's model, by expectations of a learned density."""

import importlib.util
import pathlib
import sys

import numpy as np
import pytest
from scipy.stats import norm

import diracflow as df

_PATH = pathlib.Path(__file__).parents[1] / "benchmarks" / "bench_prices.py"
_SPEC = importlib.util.spec_from_file_location("bench_prices", _PATH)
bench = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(bench)


def test_the_reference_is_the_formula_of_black_and_scholes():
    """At a constant variance: noise tends to zero, and the variance starts at its level."""
    calm = df.evaluate.HestonMarginals(noise=1e-4, correlation=0.0)
    price = bench.reference(1.1, np.array([0.0, 0.09]), 0.4, calm)
    spread = 0.3 * np.sqrt(0.4)
    upper = -np.log(1.1) / spread + spread / 2
    expected = norm.cdf(upper) - 1.1 * norm.cdf(upper - spread)
    np.testing.assert_allclose(price, expected, rtol=1e-6)


def test_quantlib_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "QuantLib", None)
    assert "diracflow[benchmark]" in bench.quantlib_row(1.0)["QuantLib"]


def test_quantlib_has_the_price_of_the_reference():
    pytest.importorskip("QuantLib", reason="the extra `benchmark` is not installed")
    # Both integrate the same characteristic function to about rounding.
    assert abs(float(bench.quantlib_row(1.1)["price"])) < 1e-9


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_prices_and_greeks_of_a_learned_density():
    """Recorded: price 8e-6, delta 1e-4, theta 9e-5, vega 1.5e-3 (see `benchmarks/README.md`).

    Vega is limited by the accuracy of the density's derivative in the initial variance.
    """
    model = df.models.heston()
    density = df.learn(model.sde, model.starts, 0.5, key=0, certify=False)
    truth = bench.reference_greeks(1.0)
    price, (by_x0, by_t) = bench.greeks(density, 1.0, 2**16)(bench.X0, bench.MATURITY)
    np.testing.assert_allclose(price, truth["price"], rtol=1e-3)
    np.testing.assert_allclose(by_x0[0], truth["delta"], rtol=1e-3)
    np.testing.assert_allclose(by_t, truth["theta"], rtol=1e-3)
    np.testing.assert_allclose(by_x0[1], truth["vega"], rtol=5e-3)
