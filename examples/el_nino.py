"""El Niño: sea surface temperatures, and a hidden ocean that recharges.

The temperature T off Peru is one half of the recharge oscillator (Jin 1997); the other half, the
depth h of the warm layer, is not in the data. dT = (-rate T + turn h) dt + noise dW1 and
dh = (-rate h - turn T) dt + noise dW2. Red noise has no turn. Data before 1990 pick parameters.

Run: python examples/el_nino.py --figure el_nino.png    (needs the extra `series`)
"""

import argparse
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from statsmodels.datasets import elnino

import diracflow as df

ERROR, SPLIT = 0.1, 1990.0  # degrees of a monthly mean; the end of the fitted years


# The exact density: noise of one size on both components does not notice the rotation.
class Recharge(df.AbstractTransitionDensity):
    dim, noise_dim, horizon = 2, 2, np.inf

    def _at_time(self, t):
        return t

    def _law(self, t, start):
        (x, h, rate, turn, noise), decay = start, jnp.exp(-start[2] * t)
        c, s = decay * jnp.cos(turn * t), decay * jnp.sin(turn * t)
        deviation = noise * jnp.sqrt((1 - decay**2) / (2 * rate))
        return jnp.stack([c * x + s * h, c * h - s * x]), deviation

    def _log_prob(self, t, x, start):
        return jnp.sum(norm.logpdf(x, *self._law(t, start)))

    def _from_noise(self, t, normal, start):
        mean, deviation = self._law(t, start)
        return mean + deviation * normal


DENSITY = Recharge(params=("rate", "turn", "noise"))
observe = lambda x, y: norm.logpdf(y[0], x[0], ERROR)
cdf = lambda x, y: norm.cdf(y[0], x[0], ERROR)


def filtered(p, times, y):
    options = {"initial": df.Normal([0.0, 0.0], 1.0), "start": float(times[0]), "history": True}
    return df.filter(1, DENSITY, times, y, observe, 2000, params=p, **options)


def main(figure: Path | None = None):
    jax.config.update("jax_enable_x64", True)
    table = elnino.load_pandas().data.to_numpy()
    anomalies = table[:, 1:] - table[table[:, 0] < SPLIT, 1:].mean(axis=0)
    times, y = table[0, 0] + np.arange(anomalies.size) / 12, anomalies.reshape(-1, 1)
    old, checks = times < SPLIT, {}
    for name, turns in {"red noise": (0.0,), "oscillator": (1.0, 1.5, 2.0)}.items():
        rows = itertools.product((0.5, 1.0, 2.0, 3.0), turns, (1.2, 1.6, 2.0, 2.4))
        points = [dict(zip(DENSITY.params, row, strict=True)) for row in rows]
        p = max(points, key=lambda p: filtered(p, times[old], y[old]).log_evidence)
        found = filtered(p, times, y)
        checks[name] = df.evaluate.filter_check(2, DENSITY, found, y, cdf, p).after(SPLIT)
        print(name, p, f"mean score {checks[name].log_scores.mean():.3f}", checks[name].tests())
    print(better := df.evaluate.compare(checks["oscillator"], checks["red noise"]))
    fan = df.forecast(3, DENSITY, found, times[-1] + np.arange(1, 37) / 12, params=p)
    if figure is not None:
        df.view.forecast_fan(fan, found, y, last=240).savefig(figure)
        checks["oscillator"].plot().figure.savefig(figure.with_stem(f"{figure.stem}_check"))
    return checks, better, found, fan


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path)
    main(**vars(parser.parse_args()))
