"""How far trainings get on SDEs of two to ten dimensions, and how wrong they are at the end.

The distance is the total variation from a reference by simulated paths at the time reached, for
starts that are drawn from the start law: half the mean of |q/p - 1| over simulated ends. The noise
of the reference is taken off the mean square of q/p - 1, and the mean of |q/p - 1| is computed from
that for a normal law. `source` is the distance of the source without the flow.

Run: python benchmarks/bench_horizon.py lorenz epidemic --seconds 150 --seeds 0
"""

import argparse
import json
import time
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.evaluate.consistency import euler_maruyama
from diracflow.sde.chart import Chart
from space_problems import PROBLEMS


def distance(density: df.TransitionDensity, sde: df.SDE, t: float, x0: np.ndarray) -> float:
    """Return the total variation distance from the reference, from one start."""
    # In unconstrained coordinates, so that no step leaves the domain.
    chart = Chart(sde, sde.domain)
    y0 = chart.start(jnp.asarray(x0))
    ends = euler_maruyama(chart.equation(), jr.key(1), y0, t, 0.0, 256, 512)
    x = jax.vmap(chart.from_real)(ends)
    found = df.evaluate.reference(sde, x, t, x0, key=2, paths=2**17)
    ratio = np.expm1(np.asarray(density.log_prob(x, t, jnp.asarray(x0))) - found.log_prob)
    square = np.mean(ratio**2) - np.mean(found.stderr**2)
    return float(np.sqrt(max(square, 0.0) / (2 * np.pi)))


def bench(name: str, seed: int, seconds: float, starts: int) -> dict:
    sde, law, horizon = PROBLEMS[name]()
    began, status = time.monotonic(), df.Status.FINISHED
    try:
        density = df.learn(
            sde, law, horizon, key=seed, preset="quick", certify=False, max_seconds=seconds
        )
    except df.TrainingFailed as failure:
        density, status = failure.density, failure.status
    wall, t = time.monotonic() - began, density.horizon
    trials = np.asarray(law.sample(jr.key(99), (starts,)))
    plain = density.source_only() if isinstance(density, df.TransitionDensity) else None
    far = {"learned": density} | ({} if plain is None else {"source": plain})
    plan = density.provenance.plan
    return {
        "problem": name,
        "seed": seed,
        "seconds": round(wall),
        "reached": t / horizon,
        "status": str(status.name),
        "steps": len(density.provenance.history),
        "source": plan.source,
        "legs": plan.legs,
        "parameters": plan.parameters,
        **{f"tv_{k}": [round(distance(d, sde, t, x0), 4) for x0 in trials] for k, d in far.items()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=", ".join(PROBLEMS))
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--starts", type=int, default=3)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    for problem in options.problems or PROBLEMS:
        for number in options.seeds:
            row = bench(problem, number, options.seconds, options.starts)
            print(json.dumps(row), flush=True)
