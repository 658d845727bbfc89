r"""Simulation-based calibration of `diracflow.infer` on the Ornstein--Uhlenbeck process.

Parameters are drawn from the prior, a path from the parameters, and the posterior from the path. If
all is right, the rank of the true parameter among draws of its posterior is uniform. Every
replication runs the model and the sampler of `infer` (NUTS, started from a draw of the prior); all
of them run side by side in one vectorised program. Draws are thinned, since ranks presume
independent ones. $\chi^2$ over twenty bins of ranks, for each parameter.

Run: python experiments/sbc_ou.py --replications 400
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array
from numpyro.infer import init_to_sample
from numpyro.infer.hmc import hmc
from numpyro.infer.util import initialize_model
from scipy.stats import chisquare

import diracflow as df
from diracflow.inference.likelihood import transitions
from diracflow.inference.posterior import path_model
from diracflow.inference.priors import checked_prior

DENSITY = df.ExactOrnsteinUhlenbeck()
PRIOR = {
    "rate": df.LogNormal(0.0, 0.5),
    "level": df.Normal(0.0, 1.0),
    "noise": df.LogNormal(-0.5, 0.3),
}
# Uneven gaps, some longer than the relaxation time.
TIMES = np.concatenate([[0.0], np.cumsum(np.tile([0.2, 0.5, 1.5], 10))])
BINS = 20


def simulate(key: Array, laws: dict) -> tuple[dict[str, Array], Array]:
    """True parameters and a path of the process from a start that says nothing about them."""
    *keys, path_key = jr.split(key, len(laws) + 1)
    params = {n: law.sample(k) for k, (n, law) in zip(keys, laws.items(), strict=True)}

    def step(x: Array, args: tuple) -> tuple[Array, Array]:
        after = DENSITY.sample(args[0], args[1], x, params=params)
        return after, after

    first, gaps = jnp.zeros(1), np.diff(TIMES)
    _, rest = jax.lax.scan(step, first, (jr.split(path_key, len(gaps)), gaps))
    return params, jnp.concatenate([first[None], rest])


def posterior(key: Array, states: Array, laws: dict, options: argparse.Namespace) -> dict:
    """Thinned draws of the parameters, from one chain."""
    init_key, run_key = jr.split(key)
    info = initialize_model(
        init_key,
        path_model(DENSITY, laws),
        init_strategy=init_to_sample,
        model_args=(transitions(DENSITY, TIMES, states),),
        validate_grad=False,
    )
    init, sample = hmc(info.potential_fn, algo="NUTS")
    state = init(info.param_info, options.warmup, rng_key=run_key)

    def thinned(state: object, _: None) -> tuple[object, dict]:
        state = jax.lax.fori_loop(0, options.thin, lambda _, s: sample(s), state)
        return state, info.postprocess_fn(state.z)

    state = jax.lax.fori_loop(0, options.warmup, lambda _, s: sample(s), state)
    return jax.lax.scan(thinned, state, length=options.draws)[1]


def ranks(key: Array, laws: dict, options: argparse.Namespace) -> dict[str, Array]:
    """Ranks of the true parameters among their posterior's draws, for one replication."""
    path_key, run_key = jr.split(key)
    true, states = simulate(path_key, laws)
    draws = posterior(run_key, states, laws, options)
    return {name: jnp.sum(draws[name] < true[name]) for name in DENSITY.params}


def report(found: dict[str, np.ndarray], options: argparse.Namespace) -> dict:
    edges = np.linspace(0, options.draws + 1, BINS + 1)
    counts = {name: np.histogram(r, edges)[0].tolist() for name, r in found.items()}
    p_values = {name: round(float(chisquare(c).pvalue), 4) for name, c in counts.items()}
    return {**vars(options), "p_values": p_values, "counts": counts}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=400)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=99)
    parser.add_argument("--thin", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    laws, began = checked_prior(DENSITY, PRIOR), time.perf_counter()
    keys = jr.split(jr.key(options.seed), options.replications)
    found = jax.jit(jax.vmap(lambda key: ranks(key, laws, options)))(keys)
    result = report({name: np.asarray(r) for name, r in found.items()}, options)
    print(json.dumps(result | {"seconds": round(time.perf_counter() - began)}))
