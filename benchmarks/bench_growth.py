"""What does one velocity of the parameters cost, and how does it grow with N, M and d?

One JSON line for each size: the median time of a velocity, of the plain Gram product `J.T @ J` with
a Cholesky factorisation of the same size and precision in the same process, and their ratio; and
the time of the linearisation that an implicit step starts with. The first lines vary the dimension
with the sizes that follow from it, the next the points N, the last the parameters M.

Run: python benchmarks/bench_growth.py
"""

import json
import time
from collections.abc import Callable
from statistics import median

import jax
import jax.numpy as jnp
import jax.random as jr

import diracflow as df
from diracflow.galerkin.collocation import draw, place
from diracflow.galerkin.implicit import system
from diracflow.galerkin.rows import linearise
from diracflow.galerkin.velocity import velocity
from diracflow.planning.prepare import prepare
from diracflow.planning.settings import settings_for
from diracflow.sde.problem import checked_problem
from diracflow.sde.quasi_random import CUBES

REPEATS = 11


def seconds(*calls: Callable) -> list[float]:
    """Median times, taken in turns so that a disturbance of the machine meets all alike."""
    for call in calls:
        jax.block_until_ready(call())
    rounds = []
    for _ in range(REPEATS):
        times = []
        for call in calls:
            began = time.perf_counter()
            jax.block_until_ready(call())
            times.append(time.perf_counter() - began)
        rounds.append(times)
    return [median(times) for times in zip(*rounds, strict=True)]


@jax.jit
def arithmetic(jacobian: jax.Array) -> jax.Array:
    gram = jacobian.T @ jacobian / len(jacobian)
    shift = 1e-6 * jnp.trace(gram) / len(gram)
    return jnp.linalg.cholesky(gram + shift * jnp.eye(len(gram)))


def bench(question: str, dim: int, **settings: object) -> dict:
    model = df.models.benes() if dim == 2 else df.models.ornstein_uhlenbeck(dim)
    problem = checked_problem(model.sde, model.starts, 1.0)
    prepared = prepare(problem, settings_for("accurate", **settings), jr.key(0))
    ansatz, chosen = prepared.ansatz, prepared.plan
    theta = ansatz.theta + 0.1 * jr.normal(jr.key(1), ansatz.theta.shape)
    clock, weak = jnp.array(0.5), jnp.array(1e-7)
    draws = draw(
        CUBES["sobol"], jr.key(2), model.starts, dim, chosen.samples, chosen.effective_share
    )
    points = place(ansatz, theta, clock, draws)
    still = jnp.zeros_like(theta)
    three, rows = jnp.stack([still] * 3), jr.normal(jr.key(3), (chosen.samples, len(theta)))
    explicit, plain, implicit = seconds(
        lambda: velocity(ansatz, theta, clock, points, weak, still, three),
        lambda: arithmetic(rows),
        lambda: system(linearise(ansatz, theta, clock, points), weak),
    )
    return {
        "question": question,
        "dim": dim,
        "layers": chosen.layers,
        "M": len(theta),
        "N": chosen.samples,
        "velocity_s": round(explicit, 4),
        "gram_and_cholesky_s": round(plain, 4),
        "ratio": round(explicit / plain, 2),
        "implicit_s": round(implicit, 4),
    }


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for dim in (1, 2, 4, 6, 10):
        print(json.dumps(bench("d", dim)), flush=True)
    for samples in (512, 1024, 4096, 8192):
        print(json.dumps(bench("N", 2, samples=samples)), flush=True)
    for hidden in (2, 4, 12, 16):
        print(json.dumps(bench("M", 2, hidden=hidden, samples=4096)), flush=True)
