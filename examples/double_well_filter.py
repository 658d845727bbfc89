"""Where is a particle in a double well, seen rarely and through noise?

Between observations it may well have crossed the barrier: a Gaussian filter, which knows one mean,
cannot say "left or right". Here particles jump from one observation to the next by the learned
transition density; no path is simulated in between.

Run: python examples/double_well_filter.py --figure bands.png
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm

import diracflow as df

GAP, COUNT, NOISE = 0.75, 40, 0.7
SDE = df.SDE(drift=lambda t, x: 4 * (x - x**3), diffusion=lambda t, x: jnp.eye(1), dim=1)


def learned() -> df.TransitionDensity:
    return df.learn(SDE, df.Normal(0.0, 1.0), 1.0, key=jr.key(0), preset="quick")


def main(density: df.AbstractTransitionDensity | None = None, figure: Path | None = None):
    jax.config.update("jax_enable_x64", True)
    density = learned() if density is None else density
    times = GAP * np.arange(1, COUNT + 1)
    [truth] = np.asarray(df.simulate(jr.key(1), density, times, np.ones(1)).states)
    seen = truth + NOISE * np.asarray(jr.normal(jr.key(2), truth.shape))
    observe = lambda x, y: norm.logpdf(y[0], x[0], NOISE)
    found = df.filter(jr.key(3), density, times, seen, observe, 4000, initial=df.Normal(0.0, 1.0))

    low, high = found.quantiles[:, 0], found.quantiles[:, -1]
    inside = np.mean((low <= truth) & (truth <= high))
    errors = [float(np.sqrt(np.mean((x - truth) ** 2))) for x in (seen, found.means)]
    print(f"root mean square error   {errors[0]:.2f} observed, {errors[1]:.2f} filtered")
    print(f"states in the 90 % band  {100 * inside:.0f} %")
    print(f"log-evidence             {found.log_evidence:.2f}")
    if figure is not None:
        df.view.filter_bands(found, seen, truth).savefig(figure)
    return errors, inside


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path)
    main(figure=parser.parse_args().figure)
