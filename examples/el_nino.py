"""El Niño: sea surface temperatures, and a hidden ocean that recharges.

The temperature T off Peru is one half of the recharge oscillator (Jin 1997); the other half, the
depth h of the warm layer, is not in the data. Both are damped and turn into each other:

    dT = (-rate T + turn h) dt + noise dW1,    dh = (-rate h - turn T) dt + noise dW2.

A turn of zero is red noise, the usual null hypothesis. Both are filtered from monthly anomalies,
their parameters picked by evidence from 1950 to 1989, and compared on the months from 1990 on.

Run: python examples/el_nino.py --figure el_nino.png    (needs the extra `series`)
"""

import argparse
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from matplotlib.figure import Figure
from statsmodels.datasets import elnino

import diracflow as df

NOISE, SPLIT = 0.1, 1990.0  # degrees of a monthly mean; the end of the fitted years
GRID = (0.5, 1.0, 2.0, 3.0), (1.0, 1.5, 2.0), (0.9, 1.2, 1.5)
START = df.Normal([0.0, 0.0], 1.0)


class Recharge(df.AbstractTransitionDensity):
    """The exact density: equal noise on both components does not notice the rotation."""

    dim, noise_dim, horizon = 2, 2, np.inf

    def _at_time(self, t):
        return t

    def _law(self, t, start):
        x, (rate, turn, noise) = start[:2], start[2:]
        c, s = jnp.cos(turn * t), jnp.sin(turn * t)
        mean = jnp.exp(-rate * t) * jnp.stack([c * x[0] + s * x[1], c * x[1] - s * x[0]])
        return mean, noise * jnp.sqrt(-jnp.expm1(-2 * rate * t) / (2 * rate))

    def _log_prob(self, t, x, start):
        return jnp.sum(norm.logpdf(x, *self._law(t, start)))

    def _from_noise(self, t, normal, start):
        mean, deviation = self._law(t, start)
        return mean + deviation * normal


DENSITY = Recharge(params=("rate", "turn", "noise"))


def filtered(p, times, y):
    observe = lambda x, y: norm.logpdf(y[0], x[0], NOISE)
    options = {"initial": START, "start": float(times[0]), "params": p, "history": True}
    return df.filter(1, DENSITY, times, y, observe, 2000, **options)


def fitted(times, y, turns):
    """Parameters of greatest evidence on a grid, and the checks of all one-step predictions."""
    points = itertools.product(GRID[0], turns, GRID[2])
    points = [dict(zip(DENSITY.params, values, strict=True)) for values in points]
    old = times < SPLIT
    p = max(points, key=lambda p: filtered(p, times[old], y[old]).log_evidence)
    found, cdf = filtered(p, times, y), lambda x, y: norm.cdf(y[0], x[0], NOISE)
    return p, found, df.evaluate.filter_check(2, DENSITY, found, y, cdf, p)


def main(figure: Path | None = None):
    jax.config.update("jax_enable_x64", True)
    table = elnino.load_pandas().data.to_numpy()
    anomalies = table[:, 1:] - table[table[:, 0] < SPLIT, 1:].mean(axis=0)
    times, y = table[0, 0] + np.arange(anomalies.size) / 12, anomalies.reshape(-1, 1)
    checks = {}
    for name, turns in {"red noise": (0.0,), "oscillator": GRID[1]}.items():
        p, found, check = fitted(times, y, turns)
        checks[name] = late = check.after(SPLIT)
        tests = {test: float(result.p[0]) for test, result in late.tests().items()}
        print(name, p, f"score {late.log_scores.mean():.3f}, p-values {tests}")
    better = df.evaluate.compare(checks["oscillator"], checks["red noise"])
    print(f"oscillator better by {better.difference:.1f} ± {better.stderr:.1f} nats")
    fan = df.forecast(3, DENSITY, found, times[-1] + np.arange(1, 37) / 12, params=p)
    if figure is not None:
        picture = Figure(figsize=(10, 3.2), layout="constrained")
        left, right = picture.subplots(1, 2, width_ratios=[2, 1])
        left.plot(times[-240:], y[-240:], ".k", markersize=2)
        check.plot(right)
        fan.plot(left)
        picture.savefig(figure, dpi=130)
    return checks, better, found, fan


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path)
    main(figure=parser.parse_args().figure)
