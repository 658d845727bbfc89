"""Simulated short rates: the posterior with a learned density against that with the exact one."""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array
from numpyro.infer import init_to_sample
from numpyro.infer.hmc import hmc
from numpyro.infer.util import initialize_model

import diracflow as df
from diracflow.inference.likelihood import transitions
from diracflow.inference.posterior import log_posterior_term, path_model
from diracflow.inference.priors import checked_prior
from rate_densities import Problem
from rate_grid import grid_log_likelihood

_MODEL = df.models.cir_family()
SIMULATED_PROBLEM = Problem("cir", _MODEL.sde, _MODEL.starts, _MODEL.horizon, _MODEL.params)
EXACT = df.ExactCIR()
PRIOR = dict(_MODEL.params)
# With rates of 1 to 4 a good part of the way back to the level: Euler's step is of no use.
GAP = 0.5
LEVEL = 0.9
Draws = dict[str, np.ndarray]


def simulate(key: Array, params: Mapping[str, Array], length: int) -> Array:
    """A path from the middle of the start law, which says nothing about the parameters."""

    def step(x: Array, key: Array) -> tuple[Array, Array]:
        after = EXACT.sample(key, GAP, x, params=params)
        return after, after

    first = jnp.exp(jnp.full(1, -1.2))
    _, rest = jax.lax.scan(step, first, jr.split(key, length))
    return jnp.concatenate([first[None], rest])


def drawn(key: Array, length: int) -> tuple[dict[str, float], np.ndarray]:
    """Parameters from their prior, and a path from these."""
    *keys, path_key = jr.split(key, len(PRIOR) + 1)
    pairs = zip(PRIOR, keys, strict=True)
    params = {name: PRIOR[name].expand(1).sample(k)[0] for name, k in pairs}
    path = jax.jit(simulate, static_argnums=2)(path_key, params, length)
    return {name: float(value) for name, value in params.items()}, np.asarray(path)


def observed_times(length: int) -> np.ndarray:
    return GAP * np.arange(length + 1)


def sampler(
    density: df.AbstractTransitionDensity, options: argparse.Namespace
) -> Callable[[Array, Array], dict[str, Array]]:
    """One chain of NUTS on the model of `diracflow.infer`, compiled once for all paths."""
    laws, times = checked_prior(density, PRIOR), observed_times(options.length)

    def run(key: Array, states: Array) -> dict[str, Array]:
        init_key, run_key = jr.split(key)
        info = initialize_model(
            init_key,
            path_model(density, laws),
            init_strategy=init_to_sample,
            model_args=(transitions(density, times, states),),
            validate_grad=False,
            forward_mode_differentiation=True,
        )
        init, sample = hmc(info.potential_fn, algo="NUTS")
        state = init(
            info.param_info,
            options.warmup,
            rng_key=run_key,
            forward_mode_differentiation=True,
        )
        state = jax.lax.fori_loop(0, options.warmup, lambda _, s: sample(s), state)

        def kept(state: Any, _: None) -> tuple[Any, dict[str, Array]]:
            state = sample(state)
            return state, info.postprocess_fn(state.z)

        return jax.lax.scan(kept, state, length=options.draws)[1]

    return jax.jit(run)


def log_likelihoods(
    density: df.AbstractTransitionDensity, length: int
) -> Callable[[Array, Mapping[str, Array]], Array]:
    """Log-likelihoods of one path for many parameters, compiled once."""
    times = observed_times(length)

    def one(states: Array, params: Mapping[str, Array]) -> Array:
        return log_posterior_term(density, transitions(density, times, states), params)

    return jax.jit(lambda states, draws: jax.lax.map(lambda p: one(states, p), draws))


def shift(draws: Draws, log_ratios: np.ndarray) -> dict[str, Any]:
    """What weights exact over learned do to posterior means, in posterior deviations.

    The same draws stand for both posteriors, so their own randomness is in both means.
    """
    weights = np.exp(log_ratios - log_ratios.max())
    weights /= weights.sum()
    moved = {
        name: float((weights @ values - values.mean()) / values.std())
        for name, values in draws.items()
    }
    return {"shift": moved, "effective_share": float(1 / np.sum(weights**2) / len(weights))}


def covered(draws: Draws, true: Mapping[str, float]) -> dict[str, bool]:
    """Whether central intervals hold the true parameters."""
    tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    ends = {name: np.quantile(values, tails) for name, values in draws.items()}
    return {name: bool(low <= true[name] <= high) for name, (low, high) in ends.items()}


def replicate(density: df.TransitionDensity, options: argparse.Namespace) -> dict[str, Any]:
    """Coverage and shifts of posteriors over replications."""
    run = sampler(density, options)
    likelihoods = [log_likelihoods(law, options.length) for law in (EXACT, density)]
    rows = []
    for key in jr.split(jr.key(options.seed + 1), options.replications):
        path_key, run_key = jr.split(key)
        true, states = drawn(path_key, options.length)
        found = run(run_key, states)
        exact, learned = (np.asarray(f(states, found)) for f in likelihoods)
        draws = {name: np.asarray(values) for name, values in found.items()}
        outside = float(np.mean(density.outside(states[:-1], true)))
        rows.append(
            {**shift(draws, exact - learned), "covered": covered(draws, true), "outside": outside}
        )
    return summary(rows)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means and extremes over replications."""
    names, count = list(rows[0]["shift"]), len(rows)
    shifts = {name: np.array([row["shift"][name] for row in rows]) for name in names}
    return {
        "replications": count,
        "coverage": {n: float(np.mean([row["covered"][n] for row in rows])) for n in names},
        "coverage_stderr": float(np.sqrt(LEVEL * (1 - LEVEL) / count)),
        "shift_rms": {name: float(np.sqrt(np.mean(s**2))) for name, s in shifts.items()},
        "shift_largest": {name: float(np.abs(s).max()) for name, s in shifts.items()},
        "least_effective_share": min(row["effective_share"] for row in rows),
        "states_outside_the_start_law": float(np.mean([row["outside"] for row in rows])),
    }


def compare(
    density: df.TransitionDensity, options: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, Draws]]:
    """`diracflow.infer` on one path, with the learned and with the exact density."""
    true, states = drawn(jr.key(options.seed), options.length)
    times, draws, rows = observed_times(options.length), {}, {}
    for name, law in {"learned": density, "exact": EXACT}.items():
        began = time.perf_counter()
        tree = df.infer(
            *(jr.key(options.seed + 2), law, times, states, PRIOR),
            draws=options.draws,
            warmup=options.warmup,
        )
        draws[name] = {p: np.asarray(tree["posterior"][p]).ravel() for p in PRIOR}
        rows[name] = {
            "seconds": round(time.perf_counter() - began, 1),
            **{key: tree.attrs[key] for key in ("r_hat", "ess", "divergences")},
            "means": {p: float(values.mean()) for p, values in draws[name].items()},
            "deviations": {p: float(values.std()) for p, values in draws[name].items()},
        }
    difference = {
        p: (rows["learned"]["means"][p] - rows["exact"]["means"][p])
        / rows["exact"]["deviations"][p]
        for p in PRIOR
    }
    # Two independent estimates of means, each from so many independent draws.
    noise = float(np.sqrt(sum(1 / row["ess"] for row in rows.values())))
    found = {"true": true, **rows, "difference": difference, "difference_noise": noise}
    return found, draws


def timings(density: df.TransitionDensity, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds for one likelihood, its error, and for the gradient where there is one."""
    true, states = drawn(jr.key(options.seed), options.length)
    times, found = observed_times(options.length), {}
    reference = float(df.log_likelihood(EXACT, times, states, true))
    for name, law in {"learned": density, "exact": EXACT}.items():
        value = lambda p, law=law: df.log_likelihood(law, times, states, p)
        run, slope = jax.jit(value), jax.jit(jax.jacfwd(value))
        found[name] = {
            "seconds": best_seconds(lambda run=run: run(true)),
            "with_gradient": best_seconds(lambda slope=slope: slope(true)),
            "error": float(run(true)) - reference,
        }
    for nodes in (200, 400, 800):
        solve = lambda nodes=nodes: grid_log_likelihood(true, GAP, states, nodes)
        found[f"grid of {nodes}"] = {
            "seconds": best_seconds(solve),
            "error": solve() - reference,
        }
    return found


def best_seconds(call: Callable[[], Any], repeats: int = 10) -> float:
    """After one call that may compile; noise only ever adds time, hence the least."""
    jax.block_until_ready(call())
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - began)
    return min(taken)


def simulated_study(
    density: df.TransitionDensity, options: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, Draws]]:
    """All of it, and the draws of both posteriors of the first path."""
    one, draws = compare(density, options)
    found = {
        "likelihood": timings(density, options),
        "one_path": one,
        "replications": replicate(density, options),
    }
    return found, draws
