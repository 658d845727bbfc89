"""How volatile is a market of which only the prices are seen?

Heston's variance is hidden, and so are its four parameters. Prices are seen once a week, with an
error of 0.3 %. Particle marginal Metropolis--Hastings draws parameters and variances together; each
filter jumps from week to week by the learned density.

Run: python examples/heston_variance.py
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm

import diracflow as df

ERROR, WEEK, COUNT = 0.003, 1 / 52, 78
SIZES = {"particles": 100, "chains": 2, "warmup": 100, "draws": 200}
TRUE = {"rate": 5.0, "level": 0.04, "noise": 0.4, "leverage": -0.6}
PRIOR = {
    "rate": df.Uniform(2.0, 8.0),
    "level": df.Uniform(0.02, 0.08),
    "noise": df.Uniform(0.2, 0.6),
    "leverage": df.Uniform(-0.9, 0.0),
}
STARTS = df.Product(df.Normal(0.0, 0.3), df.LogNormal(-3.2, 0.6))


def drift(t, x, p):
    return jnp.stack([-x[1] / 2, p["rate"] * (p["level"] - x[1])])


def diffusion(t, x, p):
    rho, root = p["leverage"], jnp.sqrt(x[1])
    price = jnp.stack([1.0, 0.0])
    return root * jnp.stack([price, p["noise"] * jnp.stack([rho, jnp.sqrt(1 - rho**2)])])


SDE = df.SDE(drift, diffusion, dim=2, params=tuple(PRIOR), domain=(df.Real(), df.Positive()))


def learned() -> df.TransitionDensity:
    return df.learn(SDE, STARTS, WEEK, key=jr.key(0), preset="quick", params=PRIOR)


def observe(x, y):
    return norm.logpdf(y[0], x[0], ERROR)


def main(density: df.AbstractTransitionDensity | None = None, **sizes: int):
    jax.config.update("jax_enable_x64", True)
    density = learned() if density is None else density
    times = WEEK * np.arange(1, COUNT + 1)
    [truth] = np.asarray(df.simulate(1, density, times, np.array([0.0, 0.04]), params=TRUE).states)
    seen = truth[:, :1] + ERROR * np.asarray(jr.normal(jr.key(2), (COUNT, 1)))
    tree = df.infer(3, density, times, seen, PRIOR, observe=observe, **(SIZES | sizes))
    for name, value in TRUE.items():
        mean, deviation = float(tree.posterior[name].mean()), float(tree.posterior[name].std())
        print(f"{name:<9} {mean:.3f} ± {deviation:.3f}  (true {value})")
    low, high = tree["hidden"]["states"].quantile([0.05, 0.95], ("chain", "draw")).values
    inside = np.mean((low <= truth) & (truth <= high), axis=0)
    print(f"variances in their 90 % intervals  {100 * inside[1]:.0f} %")
    return tree, inside


if __name__ == "__main__":
    main()
