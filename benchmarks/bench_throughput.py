"""Ten million evaluations of a learned density: how fast, in how much memory, and at which loss?

JSON lines. For float64 and float32 in turn, each in a process of its own so that peaks of memory do
not mix: points per second (the first piece compiles and is not counted), the peak of memory beyond
what the process held before, and what arguments and results take. Then the loss of float32: maximum
and mean of the difference of log-densities, over draws of the density from starts of its law at
times over its whole horizon, and at the same points the error of float64 itself against the exact
density, which says whether the loss matters.

Run: python benchmarks/bench_throughput.py
     XLA_FLAGS=--xla_force_host_platform_device_count=2 python benchmarks/bench_throughput.py
     python benchmarks/bench_throughput.py --model runs/benes/model.dflow --rows 10000000
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

import diracflow as df
from diracflow.models.catalogue import exact_of
from diracflow.transition.batching import ROWS

# Ask a process for one of these.
PRECISIONS = ("float64", "float32")


def peak() -> float:
    """Megabytes, the most this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def throughput(file: Path, rows: int, precision: str, starts: str) -> dict:
    """One line, of this process."""
    jax.config.update("jax_enable_x64", precision == "float64")
    density, rng = df.load(file), np.random.default_rng(0)
    kind, t = np.dtype(precision), 0.8 * density.horizon
    x = rng.normal(size=(rows, density.dim)).astype(kind)
    # Within the bulk of the starts: else each query warns of them.
    x0 = x[::-1] / 4 if starts == "many" else np.zeros(density.dim, kind)
    piece = min(rows, ROWS * jax.local_device_count())
    density.log_prob(x[:piece], t, x0[:piece] if starts == "many" else x0).block_until_ready()
    before, began = peak(), time.perf_counter()
    with df.query_progress():
        values = density.log_prob(x, t, x0)
        values.block_until_ready()
    seconds = time.perf_counter() - began
    assert np.isfinite(np.asarray(values)).all()
    return {
        "rows": rows,
        "precision": precision,
        "starts": starts,
        "devices": jax.local_device_count(),
        "points_per_s": round(rows / seconds),
        "seconds": round(seconds, 2),
        "peak_mb": round(peak()),
        "grown_mb": round(peak() - before),
        "arguments_mb": round((x.nbytes + (x.nbytes if starts == "many" else 0)) / 2**20),
        "result_mb": round(values.nbytes / 2**20),
        "jax": jax.__version__,
    }


def loss(file: Path, points: int) -> dict:
    """What float32 changes, next to what the density itself is off."""
    times, shares = 64, np.geomspace(1e-3, 1.0, 64)
    with jax.enable_x64(True):
        density = df.load(file)
        t = density.horizon * shares[:, None]
        x0 = np.asarray(density.starts.sample(jr.key(1), (1, points // times)))
        x = np.asarray(density.sample(jr.key(2), t, x0))
        double = np.asarray(density.log_prob(x, t, x0))
        exact = exact_of(density.sde)
        off = None if exact is None else np.abs(double - np.asarray(exact.log_prob(x, t, x0)))
    with jax.enable_x64(False):
        single = np.asarray(density.log_prob(x, t, x0), dtype=np.float64)
    difference = np.abs(single - double)
    early = shares < 0.01
    return {
        "points": difference.size,
        "float32_loss_max": float(difference.max()),
        "float32_loss_mean": float(difference.mean()),
        "float32_loss_max_after_1_percent": float(difference[~early].max()),
        "float32_loss_mean_after_1_percent": float(difference[~early].mean()),
        "model_error_max": None if off is None else float(off.max()),
        "model_error_mean": None if off is None else float(off.mean()),
    }


def _learned(folder: str, horizon: float) -> Path:
    model, file = df.models.benes(), Path(folder) / "model.dflow"
    density = df.learn(model.sde, model.starts, horizon, key=jr.key(0), preset="quick")
    density.save(file)
    return file


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--points", type=int, default=2**18, help="at which the loss is measured")
    parser.add_argument("--model", type=Path, help="a model file [Beneš, learned to --horizon]")
    parser.add_argument("--horizon", type=float, default=0.3)
    parser.add_argument("--one", nargs=2, metavar=("PRECISION", "STARTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return print(json.dumps(throughput(options.model, options.rows, *options.one)), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        file = options.model or _learned(folder, options.horizon)
        for precision in PRECISIONS:
            for starts in ("one", "many"):
                command = [sys.executable, __file__, "--model", str(file), "--rows"]
                command += [str(options.rows), "--one", precision, starts]
                subprocess.run(command, check=True)
        print(json.dumps(loss(file, options.points)), flush=True)
    return None


if __name__ == "__main__":
    _main()
