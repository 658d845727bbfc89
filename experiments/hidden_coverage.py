r"""Coverage of 90 % intervals of parameters and of a component that is never seen.

Parameters are drawn from the prior, a path from them, and noisy observations of its first
component. Chains of `diracflow.infer` draw the parameters and the path. The truth has one of 40
ranks among 39 thinned draws; the middle 36 ranks make a 90 % interval. Over many paths, intervals
hold the truth in 90 % of the cases, if inference and density are right.

The case `linear` is a damped oscillator, with its exact density. The others are the learned
densities of the examples; their paths follow Euler steps much shorter than the gaps, and not the
density. All replications run side by side in one vectorised program.

Run: python experiments/hidden_coverage.py linear --paths 60
"""

import argparse
import json
import pathlib
import runpy
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

import diracflow as df
from diracflow.hidden.evidence import HiddenProcess
from diracflow.hidden.particle_filter import schedule
from diracflow.inference.marginal_chains import MarginalSampler
from diracflow.inference.priors import checked_prior
from diracflow.models.exact_densities import AbstractExactDensity
from diracflow.sde.linear_step import linear_step

FOLDER = pathlib.Path(__file__).parents[1] / "examples"
FILES = {"langevin": "langevin_velocity.py", "heston": "heston_variance.py"}
GAPS = {"linear": 0.4, "langevin": 0.4, "heston": 1 / 52}
STEPS = 200  # of the simulation within each gap
DRAWS, EDGE = 39, 2  # ranks 2 to 37 of 40


class LinearLangevin(AbstractExactDensity):
    """Position and velocity of a damped oscillator, with its friction and noise as parameters."""

    def __init__(self) -> None:
        self.params, self.dim, self.noise_dim = ("friction", "noise"), 2, 2

    def _law(self, t: Array, start: Array) -> tuple[Array, Array]:
        """Return mean and Cholesky factor."""
        drift = jnp.array([[0.0, 1.0], [-1.0, 0.0]]).at[1, 1].set(-start[2])
        # Ten halvings of the gap leave an error far below that of any chain.
        step = linear_step(drift, jnp.diag(jnp.stack([0.0, start[3] ** 2])), t, 10)
        return start[:2] + step.change @ start[:2], jnp.linalg.cholesky(step.noise)

    def _log_prob(self, state: Array, x: Array, x0: Array) -> Array:
        mean, factor = self._law(state, x0)
        return jax.scipy.stats.multivariate_normal.logpdf(x, mean, factor @ factor.T)

    def _from_noise(self, state: Array, noise: Array, x0: Array) -> Array:
        mean, factor = self._law(state, x0)
        return mean + factor @ noise


LINEAR = {
    "PRIOR": {"friction": df.Uniform(0.3, 2.0), "noise": df.Uniform(0.4, 1.5)},
    "STARTS": df.Normal(0.0, 1.0),
    "ERROR": 0.1,
    "SDE": None,
    "observe": lambda x, y: norm.logpdf(y[0], x[0], 0.1),
}


def path(key: Array, case: dict, density: Any, true: dict, times: np.ndarray) -> Array:
    """States at all times: jumps of an exact density, else Euler steps."""
    first_key, key = jr.split(key)
    first, gap = case["STARTS"].expand(2).sample(first_key), times[0]
    if case["SDE"] is None:
        jump = lambda x, key: (density.sample(key, gap, x, params=true),) * 2
        return jax.lax.scan(jump, first, jr.split(key, len(times)))[1]
    sde, dt = case["SDE"].at(true), gap / STEPS
    positive = jnp.array([not isinstance(part, df.Real) for part in sde.domain])

    def step(x: Array, key: Array) -> tuple[Array, Array]:
        noise = jnp.sqrt(dt) * jr.normal(key, (sde.noise_dim,))
        new = x + sde.drift(0.0, x) * dt + sde.diffusion(0.0, x) @ noise
        new = jnp.where(positive, jnp.abs(new), new)
        return new, new

    states = jax.lax.scan(step, first, jr.split(key, len(times) * STEPS))[1]
    return states[STEPS - 1 :: STEPS]


def covered(
    key: Array, case: dict, laws: dict, sampler: MarginalSampler, options: argparse.Namespace
) -> dict[str, Array]:
    """Whether intervals hold the truth: of each parameter, and of the component at each time."""
    *keys, path_key, noise_key, first_key, run_key = jr.split(key, len(laws) + 4)
    true = {n: law.sample(k) for k, (n, law) in zip(keys, laws.items(), strict=True)}
    process = sampler.process
    states = path(path_key, case, process.density, true, np.asarray(process.plan.times))
    seen = states[:, :1] + case["ERROR"] * jr.normal(noise_key, (len(states), 1))
    sampler = eqx.tree_at(lambda s: s.process.plan.observations, sampler, seen)
    step = lambda index, chains: sampler.step(run_key, index, chains)[0]
    chains = jax.lax.fori_loop(0, options.warmup, step, sampler.first(first_key, 1))

    def thinned(chains: Any, block: Array) -> tuple[Any, dict[str, Array]]:
        begin = options.warmup + block * options.thin
        points = jax.lax.fori_loop(begin, begin + options.thin, step, chains)
        row = {**sampler.params(points.points.position), "hidden": points.points.run.path[..., 1]}
        return points, {name: value[0] for name, value in row.items()}

    draws = jax.lax.scan(thinned, chains, jnp.arange(DRAWS))[1]
    truth = {**true, "hidden": states[:, 1]}
    ranks = {n: jnp.sum(draws[n] < jnp.asarray(truth[n])[None], axis=0) for n in draws}
    return {name: (rank >= EDGE) & (rank <= DRAWS - EDGE) for name, rank in ranks.items()}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=GAPS)
    parser.add_argument("--paths", type=int, default=60)
    parser.add_argument("--length", type=int, default=25)
    parser.add_argument("--particles", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--thin", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="a model file, to spare the training")
    options = parser.parse_args()
    file, began = FILES.get(options.case), time.perf_counter()
    case = LINEAR if file is None else runpy.run_path(str(FOLDER / file))
    if file is None:
        density: Any = LinearLangevin()
    else:
        density = df.load(options.model, sde=case["SDE"]) if options.model else case["learned"]()
    laws = checked_prior(density, case["PRIOR"])
    times = GAPS[options.case] * np.arange(1, options.length + 1)
    plan = schedule(density, times, np.zeros((options.length, 1)), 0.0)
    first = case["STARTS"].expand(2)
    process = HiddenProcess(density, case["observe"], plan, first, options.particles)
    kernel = MarginalSampler(process, tuple(laws), tuple(laws.values()), None, options.warmup)
    keys = jr.split(jr.key(options.seed), options.paths)
    found = jax.jit(jax.vmap(lambda key: covered(key, case, laws, kernel, options)))(keys)
    shares = {name: np.asarray(hits).reshape(options.paths, -1) for name, hits in found.items()}
    means = {name: round(float(share.mean()), 3) for name, share in shares.items()}
    error = round(float(shares["hidden"].mean(axis=1).std() / options.paths**0.5), 4)
    seconds = round(time.perf_counter() - began)
    print(json.dumps({**vars(options), **means, "hidden_error": error, "seconds": seconds}))
