"""How accurate are prices and Greeks of calls under Heston's model, and what do they cost?

Learns Heston's density up to t = 0.5 (preset `accurate`), or loads `--model`. One JSON line for
each strike and method: price, delta (in the price of the asset), vega (in the initial variance) and
theta (in the time to maturity) relative to those of the characteristic function, differentiated by
central differences, and the wall time of a price with all derivatives, compiled. `joint` is
`density.at(t, x0).expect`, with the number of quasi-random points given; `marginal` integrates the
variance out first. The last lines give the cost of `expect` relative to that of as many draws, and,
if QuantLib is installed (extra `benchmark`), the error and the wall time of its analytic price
without derivatives.

Run: python benchmarks/bench_prices.py --points 4096 65536
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

import diracflow as df
from diracflow.evaluate import HestonMarginals

MATURITY, X0, STRIKES = 0.4, np.array([0.0, 0.09]), (0.9, 1.0, 1.1)


def reference(strike: float, x0: np.ndarray, t: float, law=HestonMarginals()) -> float:  # noqa: B008
    """Return the price of a call from the characteristic function (Lewis 2001)."""
    u = np.linspace(0.0, 400.0, 20_001)
    values = law.characteristic(u - 0.5j, t, x0) * strike ** (-1j * u)
    terms = values.real / (u**2 + 0.25)
    integral = (np.sum(terms) - terms[0] / 2) * (u[1] - u[0])
    return float(np.exp(x0[0]) - np.sqrt(strike) / np.pi * integral)


def reference_greeks(strike: float) -> dict:
    steps = {"delta": (np.array([1e-4, 0.0]), 0.0), "vega": (np.array([0.0, 1e-5]), 0.0)}
    steps["theta"] = np.zeros(2), 1e-5
    found = {"price": reference(strike, X0, MATURITY)}
    for name, (dx, dt) in steps.items():
        ends = [reference(strike, X0 + s * dx, MATURITY + s * dt) for s in (1, -1)]
        found[name] = (ends[0] - ends[1]) / (2 * (dx.sum() + dt))
    return found


def greeks(density: df.AbstractTransitionDensity, strike: float, points: int | None):
    """Return a compiled function that returns the price and its derivatives."""
    payoff = lambda x: jnp.maximum(jnp.exp(x[0]) - strike, 0.0)

    def price(x0, t):
        law = density.at(t, x0)
        if points is None:
            return law.marginal([0]).expect(payoff, points=1024).value
        return law.expect(payoff, points=points).value

    return jax.jit(jax.value_and_grad(price, (0, 1)))


def seconds(call, repeats: int = 20) -> float:
    jax.block_until_ready(call())
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        found.append(time.perf_counter() - begin)
    return float(np.median(found))


def quantlib_row(strike: float) -> dict:
    """Return the error and the wall time of QuantLib's analytic price, or why there is none."""
    try:
        import QuantLib as ql
    except ImportError:
        return {"QuantLib": "skipped, not installed: pip install 'diracflow[benchmark]'"}
    law, today = HestonMarginals(), ql.Date(1, 1, 2024)
    ql.Settings.instance().evaluationDate = today
    flat = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, ql.Actual365Fixed()))
    spot = ql.QuoteHandle(ql.SimpleQuote(float(np.exp(X0[0]))))
    constants = float(X0[1]), law.rate, law.level, law.noise, law.correlation
    model = ql.HestonModel(ql.HestonProcess(flat, flat, spot, *constants))
    option = ql.VanillaOption(
        ql.PlainVanillaPayoff(ql.Option.Call, strike),
        ql.EuropeanExercise(today + round(MATURITY * 365)),
    )

    def price() -> float:
        # A new engine, because an option keeps the price of its engine.
        option.setPricingEngine(ql.AnalyticHestonEngine(model))
        return option.NPV()

    error = price() / reference(strike, X0, MATURITY) - 1
    return {
        "strike": strike,
        "method": "QuantLib",
        "price": f"{error:.1e}",
        "seconds": seconds(price),
    }


def main(model: str | None, points: list[int], **settings: float) -> None:
    jax.config.update("jax_enable_x64", True)
    if model is None:
        heston = df.models.heston()
        learned = {"key": 0, "certify": False, "progress": True, **settings}
        density = df.learn(heston.sde, heston.starts, 0.5, **learned)
    else:
        density = df.load(model)
    for strike in STRIKES:
        truth = reference_greeks(strike)
        for count in [*points, None]:
            call = greeks(density, strike, count)
            price, (by_x0, by_t) = call(X0, MATURITY)
            found = {"price": price, "delta": by_x0[0], "vega": by_x0[1], "theta": by_t}
            errors = {k: f"{float(v) / truth[k] - 1:.1e}" for k, v in found.items()}
            wall = seconds(lambda call=call: call(X0, MATURITY))
            name = "marginal" if count is None else f"joint {count}"
            print(json.dumps({"strike": strike, "method": name, **errors, "seconds": wall}))
    law = density.at(MATURITY, X0)
    draw = seconds(lambda: law.sample(0, 4096))
    mean = seconds(lambda: law.expect(lambda x: jnp.exp(x[0]), points=4096))
    print(json.dumps({"expect / sample, 4096 points, eager": mean / draw}))
    for strike in STRIKES:
        print(json.dumps(quantlib_row(strike)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a model file, instead of learning")
    parser.add_argument("--points", type=int, nargs="+", default=[4096, 65_536])
    parser.add_argument("--tolerance", type=float, default=3e-3)
    main(**vars(parser.parse_args()))
