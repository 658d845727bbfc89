"""The hidden variance of the S&P 500, from daily closes alone; the VIX is the outside check.

Heston's model is learned once, over a box of parameters. Only the log-price is seen, with noise of
0.2 %, since a close is not quite the price of the model. The evidence of the filter in the years
2014 to 2016 picks parameters on a grid; 2017 and 2018 are held out.

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

DAY, NOISE, MONTH = 1 / 252, 0.002, 21 / 252
# Zero is not reached in this box: twice rate times level exceeds noise squared.
BOX = {"rate": (5, 12), "level": (0.017, 0.03), "noise": (0.2, 0.4), "correlation": (-0.95, -0.5)}
GRID = (5.5, 8.0, 11.0), (0.0175, 0.0225), (0.22, 0.3, 0.39), (-0.9, -0.6)
STARTS = df.Product(df.Normal(0.2, 0.2), df.LogNormal(np.log(0.015), 0.7))
FIRST = df.Product(df.Normal(0.0, 0.001), df.LogNormal(np.log(0.015), 0.5))


def drift(t, x, p):  # of the log-price and its variance
    return jnp.stack([0.08 - x[1] / 2, p["rate"] * (p["level"] - x[1])])


def noise(t, x, p):
    along, across = p["correlation"], jnp.sqrt(1 - p["correlation"] ** 2)
    second = p["noise"] * jnp.stack([along, across])
    return jnp.sqrt(x[1]) * jnp.stack([jnp.array([1.0, 0.0]), second])


def learned():
    sde = df.SDE(drift, noise, 2, params=tuple(BOX), domain=(df.Real(), df.Positive()))
    box = {name: df.Uniform(*ends) for name, ends in BOX.items()}
    return df.learn(sde, STARTS, 2 * DAY, key=0, params=box, preset="quick")


def main(density=None, grid=GRID, particles: int = 2000, figure: Path | None = None):
    jax.config.update("jax_enable_x64", True)
    density = learned() if density is None else density
    prices = sp500.load()["Adj Close"]["2014":"2018"]
    y, dates = np.log(prices.to_numpy() / prices.iloc[0])[1:, None], prices.index[1:]
    times, fitted = DAY * np.arange(1, len(y) + 1), int(np.sum(dates < "2017"))
    observe = lambda x, y: norm.logpdf(y[0], x[0], NOISE)
    points = [dict(zip(BOX, values, strict=True)) for values in itertools.product(*grid)]
    data = times[:fitted], y[:fitted], observe, particles
    evidence = lambda p: df.filter(1, density, *data, initial=FIRST, params=p).log_evidence
    evidences = np.array([evidence(p) for p in points])
    p = points[int(np.argmax(evidences))]

    data = times, y, observe, particles
    found = df.filter(1, density, *data, initial=FIRST, params=p, history=True)
    # The VIX is the expected mean variance of a month ahead, as a volatility in per cent.
    share = (1 - np.exp(-p["rate"] * MONTH)) / (p["rate"] * MONTH)
    ahead = p["level"] + share * (np.asarray(found.means[:, 1]) - p["level"])
    implied = vix.load()["vix"].reindex(dates).to_numpy()
    both = np.stack([100 * np.sqrt(ahead), implied])
    known = both[:, ~np.isnan(implied)]
    print("parameters", p, "log-evidence", *np.round([evidences.max(), evidences.min()], 1))
    print("mean volatility, %: filtered {:.1f}, VIX {:.1f}".format(*known.mean(axis=1)))
    print(f"correlation with the VIX: {np.corrcoef(known)[0, 1]:.2f}")
    cdf = lambda x, y: norm.cdf(y[0], x[0], NOISE)
    check = df.evaluate.filter_check(2, density, found, y, cdf, p).after(times[fitted - 1])
    for name, test in check.tests().items():
        print(f"held out, {name}: p = {test.p[0]:.2g}")
    if figure is not None:
        picture = Figure(figsize=(10, 3.2), layout="constrained")
        left, right = picture.subplots(1, 2, width_ratios=[2, 1])
        left.plot(dates, both.T, linewidth=0.8, label=["filtered from closes", "VIX"])
        left.set(ylabel="volatility, %", title="expected over a month")
        left.legend()
        check.plot(right)
        picture.savefig(figure, dpi=130)
    return p, known, check


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path)
    main(figure=parser.parse_args().figure)
