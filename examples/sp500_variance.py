"""The hidden variance of the S&P 500, from daily closes alone; the VIX is the outside check.

Heston's model of log-price and volatility, the root of the variance. Only the log-price is seen,
with 0.2 % of noise. A day is a Gaussian step (docs/series_sp500.md says how accurate); over weeks,
learn the density. Evidence from 2014 to 2016 picks parameters on a grid; the rest is held out.

Run: python examples/sp500_variance.py --figure sp500.png    (needs the extra `series`)
"""

import argparse
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from arch.data import sp500, vix
from jax.scipy.stats import norm
from matplotlib.figure import Figure

import diracflow as df

DAY, NOISE, MONTH, FITTED, FIRST = 1 / 252, 0.002, 21 / 252, "2017", [0.0, 0.12]
GRID = {
    "rate": (5.0, 10.0),
    "level": (0.015, 0.02),
    "noise": (0.4, 0.6),
    "correlation": (-0.9, -0.7),
}


def drift(t, x, p):  # near a volatility of 1 % the push away from zero is bounded
    push = (p["rate"] * p["level"] - p["noise"] ** 2 / 4) * x[1] / (x[1] ** 2 + 0.01**2)
    return jnp.stack([0.08 - x[1] ** 2 / 2, (push - p["rate"] * x[1]) / 2])


def noise(t, x, p):
    second = jnp.stack([p["correlation"], jnp.sqrt(1 - p["correlation"] ** 2)])
    return jnp.stack([x[1] * jnp.array([1.0, 0.0]), p["noise"] / 2 * second])


DENSITY = df.SourceDensity(df.EulerSource(df.SDE(drift, noise, 2, params=tuple(GRID))), DAY)
observe = lambda x, y: norm.logpdf(y[0], x[0], NOISE)
cdf = lambda x, y: norm.cdf(y[0], x[0], NOISE)


def main(grid=GRID, particles: int = 2000, figure: Path | None = None):
    jax.config.update("jax_enable_x64", True)
    prices = sp500.load()["Adj Close"]["2014":"2018"]
    y, dates = np.log(prices.to_numpy() / prices.iloc[0])[1:, None], prices.index[1:]
    times, fitted = DAY * np.arange(1, len(y) + 1), int(np.sum(dates < FITTED))
    run = lambda p, n, **options: df.filter(
        1, DENSITY, times[:n], y[:n], observe, particles, initial=FIRST, params=p, **options
    )
    points = [dict(zip(grid, row, strict=True)) for row in itertools.product(*grid.values())]
    p = max(points, key=lambda p: run(p, fitted).log_evidence)
    found = run(p, len(y), history=True)

    variance = np.sum(found.weights * found.particles[:, :, 1] ** 2, axis=1)
    # The VIX is the expected mean variance of a month ahead, as a volatility in per cent.
    share = -np.expm1(-p["rate"] * MONTH) / (p["rate"] * MONTH)
    ahead = 100 * np.sqrt(p["level"] + share * (variance - p["level"]))
    both = np.stack([ahead, vix.load()["vix"].reindex(dates).to_numpy()])
    check = df.evaluate.filter_check(2, DENSITY, found, y, cdf, p).after(times[fitted - 1])
    print(p, "filtered and VIX:", both.mean(axis=1), "correlation", np.corrcoef(both)[0, 1])
    print("held out:", check.log_scores.mean(), check.tests())
    if figure is not None:
        axes = Figure(figsize=(8, 3), layout="constrained").subplots()
        axes.plot(dates, both.T, linewidth=0.8, label=["filtered from closes", "VIX"])
        axes.legend(title="volatility of the month ahead, %")
        axes.figure.savefig(figure, dpi=130)
        check.plot().figure.savefig(figure.with_stem(f"{figure.stem}_check"))
    return p, both, check


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path)
    main(**vars(parser.parse_args()))
