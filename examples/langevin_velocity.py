"""How fast is a particle whose position alone is seen, and what slows it down?

A particle in a double well is seen through noise; its velocity never is. Friction and noise of the
force are not known either. Particle marginal Metropolis--Hastings draws them together with the
velocity at all times. Each filter jumps from one observation to the next by the learned density.

Run: python examples/langevin_velocity.py
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm

import diracflow as df

ERROR, GAP, COUNT = 0.1, 0.4, 60
SIZES = {"particles": 30, "chains": 2, "warmup": 100, "draws": 200}
TRUE = {"friction": 0.8, "noise": 0.8}
PRIOR = {"friction": df.Uniform(0.3, 2.0), "noise": df.Uniform(0.4, 1.5)}
STARTS = df.Normal(0.0, 1.0)


def drift(t, x, p):
    position, velocity = x
    return jnp.stack([velocity, position - position**3 - p["friction"] * velocity])


def diffusion(t, x, p):
    return jnp.stack([jnp.zeros(1), p["noise"] * jnp.ones(1)])


SDE = df.SDE(drift, diffusion, dim=2, params=("friction", "noise"))


def learned() -> df.TransitionDensity:
    return df.learn(SDE, STARTS, 0.5, key=jr.key(0), preset="quick", params=PRIOR)


def observe(x, y):
    return norm.logpdf(y[0], x[0], ERROR)


def main(density: df.AbstractTransitionDensity | None = None, **sizes: int):
    jax.config.update("jax_enable_x64", True)
    density = learned() if density is None else density
    times = GAP * np.arange(1, COUNT + 1)
    [truth] = np.asarray(df.simulate(1, density, times, np.ones(2), params=TRUE).states)
    seen = truth[:, :1] + ERROR * np.asarray(jr.normal(jr.key(2), (COUNT, 1)))
    tree = df.infer(3, density, times, seen, PRIOR, observe=observe, **(SIZES | sizes))
    for name, value in TRUE.items():
        mean, deviation = float(tree.posterior[name].mean()), float(tree.posterior[name].std())
        print(f"{name:<9} {mean:.2f} ± {deviation:.2f}  (true {value})")
    low, high = tree["hidden"]["states"].quantile([0.05, 0.95], ("chain", "draw")).values
    inside = np.mean((low <= truth) & (truth <= high), axis=0)
    print(f"velocities in their 90 % intervals  {100 * inside[1]:.0f} %")
    return tree, inside


if __name__ == "__main__":
    main()
