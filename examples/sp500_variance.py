"""The hidden variance of the S&P 500, from daily closes alone; the VIX is the outside check.

Heston's model is learned once, over a box of parameters. Only the log-price is seen, with noise of
0.2 %. The evidence from 2014 to 2016 picks parameters on a grid; 2017 and 2018 are held out.

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


def drift(t, x, p):  # of the log-price and its variance
    return jnp.stack([0.08 - x[1] / 2, p["rate"] * (p["level"] - x[1])])


def noise(t, x, p):
    second = p["noise"] * jnp.stack([p["correlation"], jnp.sqrt(1 - p["correlation"] ** 2)])
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
    run = lambda p, n, **options: df.filter(
        1, density, times[:n], y[:n], observe, particles, initial=[0.0, 0.015], params=p, **options
    )
    points = [dict(zip(BOX, values, strict=True)) for values in itertools.product(*grid)]
    p = max(points, key=lambda p: run(p, fitted).log_evidence)
    found = run(p, len(y), history=True)
    # The VIX is the expected mean variance of a month ahead, as a volatility in per cent.
    share = -np.expm1(-p["rate"] * MONTH) / (p["rate"] * MONTH)
    ahead = p["level"] + share * (np.asarray(found.means[:, 1]) - p["level"])
    both = np.stack([100 * np.sqrt(ahead), vix.load()["vix"].reindex(dates).to_numpy()])
    print("parameters", p)
    print(
        "volatility, filtered and VIX:", both.mean(axis=1), "correlation", np.corrcoef(both)[0, 1]
    )
    cdf = lambda x, y: norm.cdf(y[0], x[0], NOISE)
    check = df.evaluate.filter_check(2, density, found, y, cdf, p).after(times[fitted - 1])
    print("held out:", check.tests())
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
