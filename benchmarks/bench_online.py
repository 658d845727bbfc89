"""Points per second that a learned density evaluates, compared with a flowjax coupling flow.

Both run in one process, in the same precision, on the same points; calls of the two alternate, and
the figures are medians. With one point the time is mostly that of the call. The flowjax flow has
six spline layers of width 32, conditioned on the start, and holds for one time only. It is not
trained, and ours (Beneš, `accurate`) only for three steps: their cost does not depend on their
accuracy.
`one_start` and `many_starts` repeat time and starts, whose frames are kept; `new_start` has another
start in each call.

Run: pip install flowjax && python benchmarks/bench_online.py
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from statistics import median

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import diracflow as df
from spline_flow import spline_flow


def seconds(repeats: int, **functions: Callable[[], jax.Array]) -> dict[str, float]:
    """Return the median seconds of each function; alternating calls see the same load."""
    for function in functions.values():
        jax.block_until_ready(function())
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.perf_counter()
            jax.block_until_ready(function())
            times[name].append(time.perf_counter() - began)
    return {name: median(found) for name, found in times.items()}


def bench(density: df.TransitionDensity, points: int) -> dict:
    flow = eqx.filter_jit(spline_flow().log_prob)
    x, many = jr.normal(jr.key(1), (2, points, 2))
    one, t = jnp.array([0.3, -0.2]), 0.8 * density.horizon
    fresh = iter(0.3 * jr.normal(jr.key(4), (10_000, 2)))
    repeats = max(15, 2000 // points)
    ours = {
        "one_start": lambda: density.log_prob(x, t, one),
        "many_starts": lambda: density.log_prob(x, t, many),
        "new_start": lambda: density.log_prob(x, t, next(fresh)),
    }
    row: dict = {"points": points, "float": str(x.dtype)}
    for name, query in ours.items():
        start = many if name == "many_starts" else one
        times = seconds(repeats, ours=query, flowjax=lambda start=start: flow(x, start))
        row |= {f"{who}_{name}_points_per_s": round(points / s) for who, s in times.items()}
        row[f"ratio_{name}"] = round(times["flowjax"] / times["ours"], 2)
    draw = seconds(repeats, sample=lambda: density.sample(jr.key(2), t, one, shape=(points,)))
    return row | {"sample_points_per_s": round(points / draw["sample"])}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, nargs="+", default=[1, 1000, 100_000])
    options = parser.parse_args()
    model = df.models.benes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the training stops early
        law, horizon = model.starts, model.horizon
        learned = df.learn(model.sde, law, horizon, key=0, max_steps=3, certify=False)
    for count in options.points:
        print(json.dumps(bench(learned, count)), flush=True)
