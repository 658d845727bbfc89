r"""Simulation-based calibration of `diracflow.infer` given noisy, partial observations.

As in `sbc_ou.py`, with states of an Ornstein--Uhlenbeck process that are seen with noise, every
fourth one not at all. The posterior comes from correlated particle marginal Metropolis--Hastings,
one chain for each replication; all of them run side by side in one vectorised program. Draws are
thinned, since ranks presume independent ones. $\chi^2$ over twenty bins of ranks.

Run: python experiments/sbc_hidden_ou.py --replications 200
"""

import argparse
import json
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array
from scipy.stats import chisquare

import diracflow as df
from diracflow.hidden.evidence import HiddenProcess
from diracflow.hidden.particle_filter import schedule
from diracflow.inference.marginal_chains import MarginalSampler
from diracflow.inference.priors import checked_prior

DENSITY = df.ExactOrnsteinUhlenbeck()
PRIOR = {
    "rate": df.LogNormal(0.0, 0.5),
    "level": df.Normal(0.0, 1.0),
    "noise": df.LogNormal(-0.5, 0.3),
}
# Uneven gaps, some longer than the relaxation time.
TIMES = np.cumsum(np.tile([0.2, 0.5, 1.5, 0.4], 6))
ERROR, BINS = 0.3, 20
START = df.Normal(0.0, 1.0).expand(1)


def observe(x: Array, y: Array) -> Array:
    return norm.logpdf(y[0], x[0], ERROR)


def simulate(key: Array, laws: dict) -> tuple[dict[str, Array], Array]:
    """True parameters, and noisy observations of a path of the process."""
    *keys, start_key, path_key, noise_key = jr.split(key, len(laws) + 3)
    params = {n: law.sample(k) for k, (n, law) in zip(keys, laws.items(), strict=True)}

    def step(x: Array, args: tuple) -> tuple[Array, Array]:
        after = DENSITY.sample(args[0], args[1], x, params=params)
        return after, after

    gaps = np.diff(TIMES, prepend=0.0)
    first = START.sample(start_key)
    _, states = jax.lax.scan(step, first, (jr.split(path_key, len(gaps)), gaps))
    return params, states + ERROR * jr.normal(noise_key, states.shape)


def ranks(
    key: Array, laws: dict, sampler: MarginalSampler, options: argparse.Namespace
) -> dict[str, Array]:
    """Ranks of the true parameters among their posterior's draws, for one replication."""
    data_key, first_key, run_key = jr.split(key, 3)
    true, seen = simulate(data_key, laws)
    sampler = eqx.tree_at(lambda s: s.process.plan.observations, sampler, seen)
    chains = sampler.first(first_key, 1)
    step = lambda index, chains: sampler.step(run_key, index, chains)[0]
    chains = jax.lax.fori_loop(0, options.warmup, step, chains)

    def thinned(chains: object, block: Array) -> tuple[object, dict[str, Array]]:
        begin = options.warmup + block * options.thin
        chains = jax.lax.fori_loop(begin, begin + options.thin, step, chains)
        return chains, sampler.params(chains.points.position)

    draws = jax.lax.scan(thinned, chains, jnp.arange(options.draws))[1]
    return {name: jnp.sum(draws[name][:, 0] < true[name]) for name in laws}


def report(found: dict[str, np.ndarray], options: argparse.Namespace) -> dict:
    edges = np.linspace(0, options.draws + 1, BINS + 1)
    counts = {name: np.histogram(r, edges)[0].tolist() for name, r in found.items()}
    p_values = {name: round(float(chisquare(c).pvalue), 4) for name, c in counts.items()}
    return {**vars(options), "p_values": p_values, "counts": counts}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--particles", type=int, default=30)
    parser.add_argument("--correlation", type=float)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--draws", type=int, default=39)
    parser.add_argument("--thin", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    laws, began = checked_prior(DENSITY, PRIOR), time.perf_counter()
    blank = np.zeros((len(TIMES), 1))
    blank[3::4] = np.nan
    plan = schedule(DENSITY, TIMES, blank, 0.0)
    process = HiddenProcess(DENSITY, observe, plan, START, options.particles)
    kernel = MarginalSampler(
        process, tuple(laws), tuple(laws.values()), options.correlation, options.warmup
    )
    keys = jr.split(jr.key(options.seed), options.replications)
    found = jax.jit(jax.vmap(lambda key: ranks(key, laws, kernel, options)))(keys)
    result = report({name: np.asarray(r) for name, r in found.items()}, options)
    print(json.dumps(result | {"seconds": round(time.perf_counter() - began)}))
