"""Paths of the Beneš SDE between two points.

Given both ends, a Beneš process is a Brownian bridge, which tells whether the paths are right. The
exact density guides them; with --learn one that is learned first, in a minute or two.

Run: python examples/benes_bridge.py --figure fan.png
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp

import diracflow as df

X0, X1, T = jnp.array([0.5, -0.2]), jnp.array([-2.0, 1.5]), 3.0


def main(learn: bool = False, figure: Path | None = None):
    jax.config.update("jax_enable_x64", True)
    model = df.models.benes()
    density = model.exact
    if learn:
        density = df.learn(model.sde, model.starts, T, key=jax.random.key(0), preset="quick")

    paths = df.bridge(jax.random.key(1), density, X0, X1, T, sde=model.sde)
    middle = int(jnp.argmin(jnp.abs(paths.times - T / 2)))
    s = paths.times[middle]
    mean = paths.mean(lambda path: path[middle])
    variance = paths.mean(lambda path: (path[middle] - mean) ** 2)

    print(f"effective share of the paths   {paths.effective_share:.3f}")
    print(f"mean at s = {s:.2f}               {mean}, Brownian bridge {X0 + s / T * (X1 - X0)}")
    print(f"variance                       {variance}, Brownian bridge {s * (T - s) / T:.4f}")
    print(f"log-density of the end         {paths.log_density:.4f} by the weights,")
    print(f"                               {density.log_prob(X1, T, X0):.4f} by the density")
    if figure is not None:
        df.view.bridge_fan(paths).savefig(figure)
    return paths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learn", action="store_true")
    parser.add_argument("--figure", type=Path)
    main(**vars(parser.parse_args()))
