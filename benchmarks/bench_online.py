"""How many points per second does a learned density evaluate, next to a flowjax coupling flow?

Both in one process, in the same precision, on the same points; the median of repeated calls. The
flowjax flow has six spline layers of width 32 (untrained: its cost does not depend on its weights)
and is conditioned on the start; it knows one time only. Ours is learned on Beneš, with a short
horizon to be quick: the cost of a query grows only slowly with the number of steps.

Run: pip install flowjax && python benchmarks/bench_online.py
"""

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import diracflow as df
from spline_flow import spline_flow

REPEATS = 15


def seconds(function: Callable[[], jax.Array]) -> float:
    jax.block_until_ready(function())
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - began)
    return median(times)


def bench(density: df.TransitionDensity, points: int) -> dict:
    flow = eqx.filter_jit(spline_flow().log_prob)
    x, many = jr.normal(jr.key(1), (2, points, 2))
    one, t = jnp.array([0.3, -0.2]), 0.8 * density.horizon
    times = {
        "one_start": seconds(lambda: density.log_prob(x, t, one)),
        "many_starts": seconds(lambda: density.log_prob(x, t, many)),
        "sample": seconds(lambda: density.sample(jr.key(2), t, one, shape=(points,))),
        "flowjax_one_start": seconds(lambda: flow(x, one)),
        "flowjax_many_starts": seconds(lambda: flow(x, many)),
    }
    return {
        "points": points,
        "float": str(x.dtype),
        **{f"{name}_points_per_s": round(points / s) for name, s in times.items()},
        "ratio_one_start": round(times["flowjax_one_start"] / times["one_start"], 2),
        "ratio_many_starts": round(times["flowjax_many_starts"] / times["many_starts"], 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, nargs="+", default=[1, 1000, 100_000])
    options = parser.parse_args()
    model = df.models.benes()
    learned = df.learn(model.sde, model.starts, 0.3, key=jr.key(0))
    for count in options.points:
        print(json.dumps(bench(learned, count)), flush=True)
