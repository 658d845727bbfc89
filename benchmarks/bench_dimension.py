"""How do error and cost grow with the dimension, and where does it end?

One JSON line for each case and dimension: parameters, samples, seconds per step (the median of the
steps; the first compile) and in all, the horizon reached, the residual on fresh points, the mean
certificate bound, and where an exact density is known the mean relative squared L2 error over fresh
starts at the horizon reached, with its standard error, next to the source's own. Above two
dimensions this error is a mean over draws of the exact density, and in many dimensions its weights
spread: the total variation, whose terms are bounded, is given beside it. Cases:

- benes: the rotated Beneš process, whose density has 2^d modes
- sheared: the sheared Brownian motion, with noise that depends on the state
- ou: an Ornstein-Uhlenbeck process with a random stable matrix and full noise; its source is exact
- chain: coupled double wells, no exact density

A run ends after `--limit` seconds and is judged as far as it got; errors are lines, too.

Run: python benchmarks/bench_dimension.py --cases benes chain --dims 2 4 6 10 20 --limit 1800
     python benchmarks/bench_dimension.py --plot benchmarks/dimension.jsonl dimension.png
"""

import argparse
import json
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median

import jax
import jax.random as jr
import numpy as np

import diracflow as df
from bench_accuracy import case as accuracy_case
from diracflow.density.summary import certificate_table
from diracflow.evaluate.errors import study
from diracflow.view.axes import panels, style

CASES: dict[str, Callable[[int], df.models.Model]] = {
    "benes": lambda dim: df.models.benes(dim=dim),
    "sheared": lambda dim: df.models.sheared(dim=dim),
    "ou": lambda dim: accuracy_case(f"ou{dim}"),
    "chain": df.models.double_well_chain,
}


def learned(model: df.models.Model, options: argparse.Namespace) -> df.TransitionDensity:
    """What a training reaches within the limit, however it ends."""
    horizon = options.horizon or model.horizon
    settings = {"preset": options.preset, "max_seconds": options.limit, "progress": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return df.learn(
                model.sde,
                *(model.starts, horizon),
                key=jr.key(options.seed),
                certify=False,
                **settings,
            )
        except df.TrainingFailed as failure:
            return failure.density


def bench(name: str, dim: int, options: argparse.Namespace) -> dict:
    """One line."""
    model = CASES[name](dim)
    jax.clear_caches()
    began = time.perf_counter()
    density = learned(model, options)
    wall = time.perf_counter() - began
    return {
        "case": name,
        "dim": dim,
        "preset": options.preset,
        "seed": options.seed,
        "status": density.status.name,
        "asked_horizon": density.provenance.plan.horizon,
        "horizon": density.horizon,
        "learn_s": round(wall, 1),
        **_training(density),
        **_error(density, model, options),
        **_bound(density, options),
        "jax": jax.__version__,
    }


def _training(density: df.TransitionDensity) -> dict:
    history, settings = density.provenance.history, density.provenance.plan
    clocks = np.array([record.seconds for record in history])
    residuals = [record.fresh_residual for record in history]
    return {
        "source": settings.source,
        "layers": settings.layers,
        "hidden": settings.hidden,
        "parameters": int(density.trajectory.thetas.shape[1]),
        "samples": settings.samples,
        "memory_gb": round(density.provenance.plan.memory / 2**30, 3),
        "steps": len(history),
        "rejected": sum(record.rejected for record in history),
        "step_s": round(float(np.median(np.diff(clocks))), 3) if len(clocks) > 1 else None,
        "fresh_residual_median": median(residuals) if residuals else None,
        "fresh_residual_last": residuals[-1] if residuals else None,
    }


def _error(
    density: df.TransitionDensity, model: df.models.Model, options: argparse.Namespace
) -> dict:
    if model.exact is None or density.horizon <= 0:
        return {"error": None}
    times = density.horizon * np.array([0.1, 1.0])
    counts = {"starts": options.starts, "samples": options.samples}
    row = study(density, model.exact, key=jr.key(1000), times=times, **counts).summary()[-1]
    return {
        "error": row["squared_l2"],
        "error_stderr": row["squared_l2_stderr"],
        "source_error": row["source_squared_l2"],
        "total_variation": row["total_variation"],
        "total_variation_stderr": row["total_variation_stderr"],
        "source_total_variation": row["source_total_variation"],
    }


def _bound(density: df.TransitionDensity, options: argparse.Namespace) -> dict:
    if options.no_certificate or density.horizon <= 0:
        return {"certificate": None}
    began = time.perf_counter()
    table = certificate_table(density, jr.key(2000))
    last = [row["bound"] for row in table if row["t"] == max(r["t"] for r in table)]
    return {
        "certificate": fmean(row["bound"] for row in table),
        "certificate_at_horizon": fmean(last),
        "certificate_s": round(time.perf_counter() - began, 1),
    }


_MARKS = "os^D"  # of cases, for print in grey


@style()
def plot(lines: Path, picture: Path) -> None:
    """Error, certificate and cost against the dimension."""
    rows = [json.loads(line) for line in lines.read_text().splitlines() if line.strip()]
    rows = [row for row in rows if "failure" not in row]
    figure, axes = panels(10.0, 5.6, 2, 2)
    shown = {
        "relative squared L2 error at the end": "error",
        "certified bound at the end": "certificate_at_horizon",
        "seconds per step": "step_s",
        "share of the horizon reached": "share",
    }
    for axis, (title, quantity) in zip(axes.flat, shown.items(), strict=True):
        _panel(axis, rows, quantity)
        axis.set(title=title, xlabel="dimension")
        axis.set_yscale("linear" if quantity == "share" else "log")
    axes[0, 0].legend()
    figure.savefig(picture, dpi=100)


def _panel(axis, rows: list[dict], quantity: str) -> None:
    for index, name in enumerate(CASES):
        own = [row | {"share": row["horizon"] / row["asked_horizon"]} for row in rows]
        own = [row for row in own if row["case"] == name and row.get(quantity) is not None]
        own.sort(key=lambda row: row["dim"])
        dims, values = [row["dim"] for row in own], [row[quantity] for row in own]
        axis.plot(dims, values, "-" + _MARKS[index], color=f"C{index}", label=name)
        # Hollow: the training did not reach its horizon, and is judged where it ended.
        for row in own:
            fill = f"C{index}" if row["status"] == "FINISHED" else "white"
            axis.plot(row["dim"], row[quantity], _MARKS[index], mec=f"C{index}", mfc=fill)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 4, 6, 10, 20])
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds per training")
    parser.add_argument("--horizon", type=float, help="instead of each model's own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--starts", type=int, default=16)
    parser.add_argument("--samples", type=int, default=2048, help="draws per start in the error")
    parser.add_argument("--no-certificate", action="store_true")
    parser.add_argument("--plot", type=Path, nargs=2, metavar=("LINES", "PICTURE"))
    options = parser.parse_args()
    if options.plot:
        return plot(*options.plot)
    jax.config.update("jax_enable_x64", True)
    for name in options.cases:
        for dim in options.dims:
            try:
                line = bench(name, dim, options)
            except Exception as error:
                traceback.print_exc()
                line = {"case": name, "dim": dim, "failure": f"{type(error).__name__}: {error}"}
            print(json.dumps(line), flush=True)
    return None


if __name__ == "__main__":
    _main()
