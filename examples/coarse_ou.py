"""Parameters of a coarsely observed process: one Euler step between observations, or the density.

A thousand observations of dX = rate (level - X) dt + noise dW, more than a relaxation time apart.
The Euler likelihood takes the drift as constant over each gap, and finds a process that relaxes too
slowly with too little noise; the transition density does not care how long gaps are.

Run: python examples/coarse_ou.py
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm

import diracflow as df

TRUE = {"rate": 1.2, "level": 0.5, "noise": 0.8}
GAP, LENGTH = 1.0, 1000


class EulerStep(df.AbstractTransitionDensity):
    """One Euler step, as a transition density: N(x0 + rate (level - x0) t, noise² t)."""

    dim, noise_dim, horizon = 1, 1, np.inf

    def _at_time(self, t):
        return t

    def _log_prob(self, t, x, start):
        x0, rate, level, noise = start
        return norm.logpdf(x[0], x0 + rate * (level - x0) * t, noise * jnp.sqrt(t))

    def _from_noise(self, t, normal, start):
        x0, rate, level, noise = start
        return x0 + rate * (level - x0) * t + noise * jnp.sqrt(t) * normal


def main():
    jax.config.update("jax_enable_x64", True)
    exact = df.ExactOrnsteinUhlenbeck()  # or a density learned over these parameters
    times = GAP * np.arange(LENGTH + 1)
    [states] = df.simulate(jr.key(0), exact, times, np.zeros(1), params=TRUE).states
    start, bounds = {"rate": 0.5, "level": 0.0, "noise": 1.0}, {"noise": (0.0, np.inf)}
    densities, found = {"density": exact, "Euler": EulerStep(params=exact.params)}, {}
    for name, density in densities.items():
        found[name] = df.maximum_likelihood(density, times, states, start, bounds=bounds)
        for parameter, value in found[name].params.items():
            error, true = found[name].standard_errors[parameter], TRUE[parameter]
            print(f"{name:8} {parameter:6} {value:6.3f} ± {error:.3f} (true {true})")
    return found


if __name__ == "__main__":
    main()
