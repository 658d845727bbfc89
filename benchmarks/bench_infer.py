"""How many effective samples a second do particle marginal chains make, with correlated noise?

Noisy, partial observations of an Ornstein--Uhlenbeck process, every fourth missing; correlation
zero is plain particle marginal Metropolis--Hastings, and -1 that which the warm-up finds. Effective
samples are those of the worst parameter over four chains. One line for each case; seconds exclude
compilation and warm-up. On a busy machine compare those of the processor.

Run: python benchmarks/bench_infer.py --particles 30 100 --correlations -1 0 0.9
"""

import argparse
import json
import time
import warnings

import jax
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm

import diracflow as df

DENSITY = df.ExactOrnsteinUhlenbeck()
TRUE = {"rate": 1.0, "level": 0.2, "noise": 0.6}
PRIOR = {
    "rate": df.LogNormal(0.0, 0.5),
    "level": df.Normal(0.0, 1.0),
    "noise": df.LogNormal(-0.5, 0.3),
}
ERROR, START = 0.2, df.Normal(0.0, 0.5)


def series(length: int) -> tuple[np.ndarray, np.ndarray]:
    times = 0.4 * np.arange(1, length + 1)
    path = np.asarray(df.simulate(1, DENSITY, times, START, params=TRUE).states)[0]
    seen = path + ERROR * np.random.default_rng(0).normal(size=path.shape)
    seen[3::4] = np.nan
    return times, seen


def bench(particles: int, correlation: float, options: argparse.Namespace) -> dict:
    times, seen = series(options.length)
    observe = lambda x, y: norm.logpdf(y[0], x[0], ERROR)

    def run(draws: int, warmup: int) -> tuple[object, np.ndarray]:
        began = np.array([time.perf_counter(), time.process_time()])
        found = df.infer(
            *(jr.key(options.seed), DENSITY, times, seen, PRIOR),
            **{"observe": observe, "initial": START, "particles": particles},
            **{"correlation": None if correlation < 0 else correlation},
            **{"draws": draws, "warmup": warmup},
        )
        return found, np.array([time.perf_counter(), time.process_time()]) - began

    # The first call compiles, the second has the warm-up alone.
    run(1, options.warmup)
    _, short = run(1, options.warmup)
    tree, long = run(1 + options.draws, options.warmup)
    seconds, processor = long - short
    sizes = {"particles": particles, "correlation": correlation, "length": options.length}
    return {
        **sizes,
        "draws": options.draws,
        "ess": round(tree.attrs["ess"], 1),
        "r_hat": round(tree.attrs["r_hat"], 4),
        "acceptance": round(float(tree.sample_stats["acceptance_rate"].mean()), 3),
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "ess_per_second": round(tree.attrs["ess"] / seconds, 2),
        "ess_per_processor_second": round(tree.attrs["ess"] / processor, 2),
    }


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # short chains, and poor mixing is measured
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--particles", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--correlations", type=float, nargs="+", default=[-1.0, 0.0])
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for particles in options.particles:
        for correlation in options.correlations:
            print(json.dumps(bench(particles, correlation, options)), flush=True)
