r"""Heston's parameters from monthly observations, with one learned density for all of them.

The log-price and its variance are observed once a month (the variance as one does who has a
volatility index). No transition density is known, only that of each component by itself, so there
is no exact posterior to compare with. Instead: how far the learned density's marginals are from the
exact ones at parameters drawn from the box, and whether posterior intervals cover the parameters
that paths were simulated with. Paths are drawn by an exact scheme for the variance on a fine grid,
and given the variance the log-price is normal.

What happens does not depend on the log-price itself, so every transition is seen from zero.

Run: python experiments/heston.py --replications 40
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array
from scipy.stats import multivariate_normal, qmc

import diracflow as df
from diracflow.evaluate.references import HestonMarginals
from diracflow.inference.likelihood import transitions
from diracflow.inference.posterior import log_posterior_term
from rate_densities import Problem, learned_density
from rate_simulated import best_seconds

GAP = 1 / 12
ENDS = "low", "high"
# Steps between two observations; the integral of the variance is a trapezoidal sum over them.
FINE = 64
# Zero is not reached in this box: twice rate times level over noise squared is at least 1.75.
BOX = {
    "rate": df.Uniform(2.0, 5.0),
    "level": df.Uniform(0.07, 0.12),
    "noise": df.Uniform(0.2, 0.4),
    "correlation": df.Uniform(-0.8, -0.3),
}


def drift(t: Array, x: Array, p: Mapping[str, Array]) -> Array:
    return jnp.stack([-x[1] / 2, p["rate"] * (p["level"] - x[1])])


def noise(t: Array, x: Array, p: Mapping[str, Array]) -> Array:
    along, across = p["noise"] * p["correlation"], p["noise"] * jnp.sqrt(1 - p["correlation"] ** 2)
    one, none = jnp.ones_like(along), jnp.zeros_like(along)
    return jnp.sqrt(x[1]) * jnp.stack([jnp.stack([one, none]), jnp.stack([along, across])])


PROBLEM = Problem(
    "heston",
    df.SDE(drift, noise, 2, params=tuple(BOX), domain=(df.Real(), df.Positive())),
    df.Product(df.Normal(0.0, 0.1), df.LogNormal(np.log(0.09), 0.4)),
    GAP,
    BOX,
)


def simulate(key: Array, p: Mapping[str, Array], length: int) -> tuple[Array, Array]:
    """Increments of the log-price and variances at the observations, the first at its level."""
    step = GAP / FINE
    variance_law = {name: p[name] for name in ("rate", "level", "noise")}
    fine_key, price_key = jr.split(key)

    def move(v: Array, key: Array) -> tuple[Array, Array]:
        after = df.ExactCIR().sample(key, step, v, params=variance_law)
        return after, after[0]

    first = jnp.reshape(jnp.asarray(p["level"]), (1,))
    _, rest = jax.lax.scan(move, first, jr.split(fine_key, length * FINE))
    v = jnp.concatenate([first, rest])
    pieces = (v[1:] + v[:-1]) / 2 * step
    integral = pieces.reshape(length, FINE).sum(axis=1)
    seen = v[::FINE]
    # The noise of the variance, which the log-price shares in part.
    shared = (jnp.diff(seen) - p["rate"] * (p["level"] * GAP - integral)) / p["noise"]
    own = jnp.sqrt((1 - p["correlation"] ** 2) * integral) * jr.normal(price_key, (length,))
    return -integral / 2 + p["correlation"] * shared + own, seen


def observed(increments: Array, variances: Array) -> np.ndarray:
    """Transitions as paths of two states each, seen from the log-price zero."""
    before = np.stack([np.zeros_like(increments), variances[:-1]], axis=-1)
    after = np.stack([increments, variances[1:]], axis=-1)
    return np.stack([before, after], axis=1)


def drawn(key: Array) -> dict[str, float]:
    keys = dict(zip(BOX, jr.split(key, len(BOX)), strict=True))
    return {name: float(law.expand(1).sample(keys[name])[0]) for name, law in BOX.items()}


def marginal_errors(density: df.TransitionDensity, draws: int = 8) -> dict[str, float]:
    """Mean relative squared L2 errors of both marginals after the gap, started at the level."""
    errors = []
    for key in jr.split(jr.key(11), draws):
        params = drawn(key)
        start = np.array([0.0, params["level"]])
        law = HestonMarginals(**params)
        deviation = np.sqrt(params["level"] * GAP)
        wide = params["noise"] * deviation
        x = np.linspace(-7, 7, 201) * deviation
        v = np.exp(np.log(params["level"]) + np.linspace(-7, 7, 201) * wide / params["level"])
        grid = np.stack(np.meshgrid(x, v, indexing="ij"), axis=-1)
        joint = np.asarray(density.prob(grid, GAP, start, params=params))
        exact = law.log_price(x, GAP, start), law.variance(v, GAP, start)
        learned = np.trapezoid(joint, v, axis=1), np.trapezoid(joint, x, axis=0)
        points = x, v
        errors.append(
            [
                np.trapezoid((a - b) ** 2, y) / np.trapezoid(b**2, y)
                for a, b, y in zip(learned, exact, points, strict=True)
            ]
        )
    mean = np.mean(errors, axis=0)
    return {"log_price": float(mean[0]), "variance": float(mean[1])}


def log_likelihoods(density: df.TransitionDensity) -> Callable[[Array, dict[str, Array]], Array]:
    """Log-likelihoods of one path for many parameters, compiled once for all paths."""

    def one(states: Array, params: Mapping[str, Array]) -> Array:
        seen = transitions(density, np.array([0.0, GAP]), states)
        return log_posterior_term(density, seen, params)

    return jax.jit(
        lambda states, draws: jax.lax.map(lambda p: one(states, p), draws, batch_size=64)
    )


def posterior(
    likelihoods: Callable, states: np.ndarray, rng: np.random.Generator, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Parameters, one a row, and their weights, by importance sampling in rounds.

    The first draws fill the box, the prior. Each further round draws from a normal law with the
    moments of the last, widened, and leaves out what is outside the box.
    """
    low, high = (np.array([float(getattr(law, end)) for law in BOX.values()]) for end in ENDS)
    draws = low + (high - low) * qmc.Sobol(len(BOX), rng=rng).random(count)
    log_proposal = np.zeros(count)
    for last in (False, False, True):
        values = np.asarray(likelihoods(states, dict(zip(BOX, draws.T, strict=True))))
        log_weights = values - log_proposal
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        if last:
            break
        mean = weights @ draws
        covariance = 2 * np.cov(draws.T, aweights=weights) + 1e-6 * np.diag((high - low) ** 2)
        law = multivariate_normal(mean, covariance)
        tried = law.rvs(8 * count, random_state=rng)
        draws = tried[np.all((tried > low) & (tried < high), axis=1)][:count]
        log_proposal = law.logpdf(draws)
    return draws, weights


def replications(density: df.TransitionDensity, options: argparse.Namespace) -> dict[str, Any]:
    """Coverage of central 90 % intervals over parameters drawn from the box."""
    likelihoods, simulated = log_likelihoods(density), jax.jit(simulate, static_argnums=2)
    rng, rows = np.random.default_rng(options.seed), []
    for key in jr.split(jr.key(options.seed + 1), options.replications):
        draw_key, path_key = jr.split(key)
        true = drawn(draw_key)
        states = observed(*map(np.asarray, simulated(path_key, true, options.length)))
        draws, weights = posterior(likelihoods, states, rng, options.draws)
        truth = np.array(list(true.values()))
        below = np.sum(weights[:, None] * (draws < truth), axis=0)
        mean = weights @ draws
        deviation = np.sqrt(weights @ (draws - mean) ** 2)
        rows.append(
            [below, (truth - mean) / deviation, deviation, np.full(4, 1 / (weights @ weights))]
        )
        print(f"{len(rows)} of {options.replications} paths", file=sys.stderr, flush=True)
    below, scores, deviations, effective = np.moveaxis(np.array(rows), 1, 0)
    named = lambda values: dict(zip(BOX, map(float, values), strict=True))
    return {
        "coverage": named(np.mean((below > 0.05) & (below < 0.95), axis=0)),
        "coverage_stderr": float(np.sqrt(0.9 * 0.1 / len(rows))),
        "standardised_error_rms": named(np.sqrt(np.mean(scores**2, axis=0))),
        "posterior_deviation": named(np.mean(deviations, axis=0)),
        "least_effective_draws": float(effective.min()),
    }


def likelihood_seconds(density: df.TransitionDensity, options: argparse.Namespace) -> dict:
    true = drawn(jr.key(options.seed))
    simulated = jax.jit(simulate, static_argnums=2)(jr.key(3), true, options.length)
    states = observed(*map(np.asarray, simulated))
    seen = transitions(density, np.array([0.0, GAP]), states)
    value: Callable = lambda p: log_posterior_term(density, seen, p)
    run, slope = jax.jit(value), jax.jit(jax.jacfwd(value))
    return {
        "seconds": best_seconds(lambda: run(true)),
        "with_gradient": best_seconds(lambda: slope(true)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--length", type=int, default=120, help="transitions of a simulated path")
    parser.add_argument("--draws", type=int, default=2048, help="in each of three rounds")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/heston"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    path = options.out / f"heston_{options.preset}.dflow"
    density = learned_density(PROBLEM, path, jr.key(options.seed), options.preset)
    began = time.perf_counter()
    found = {
        "learn_seconds": round(density.provenance.seconds, 1),
        "largest_bound": max(row["bound"] for row in density.provenance.certificate),
        "marginal_errors": marginal_errors(density),
        "likelihood": likelihood_seconds(density, options),
        "replications": replications(density, options),
    }
    found["study_seconds"] = round(time.perf_counter() - began, 1)
    (options.out / "heston.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
