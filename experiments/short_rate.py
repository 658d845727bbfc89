r"""Interest rates observed once in a while: what learned densities are worth for inference.

`simulated`: paths of the Cox--Ingersoll--Ross process, drawn exactly, half a year between two
observations, parameters drawn from their prior. The posterior with one learned density for all
parameters against that with the exact likelihood: once by `diracflow.infer` with both, and over
replications by the same model and sampler, compiled once, with weights that lead from the learned
posterior to the exact one. Coverage of 90 % intervals; time of one likelihood beside that of a
Fokker--Planck grid, which is solved anew for every proposal.

`series`: the three-month Treasury bill rate, quarterly, from the data of `statsmodels`. CIR and
CKLS by maximum likelihood on learned densities, and whether one-step predictions are calibrated.

Learned densities are kept in `--out` and read from there the next time.

Run: python experiments/short_rate.py --parts simulated series --replications 50
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.random as jr

import diracflow as df
from rate_densities import Problem, learned_density
from rate_figures import draw_posteriors, draw_series
from rate_series import SERIES_PROBLEMS, series_study, treasury_bills
from rate_simulated import SIMULATED_PROBLEM, simulated_study


def obtained(problem: Problem, options: argparse.Namespace) -> tuple[df.TransitionDensity, dict]:
    """A density from its file, or learned and put there; and how long that took."""
    began = time.perf_counter()
    path = options.out / f"{problem.name}_{options.preset}.dflow"
    read = path.exists()
    density = learned_density(problem, path, jr.key(options.seed), options.preset)
    facts = {
        "file": path.name,
        "read": read,
        "seconds": round(time.perf_counter() - began, 1),
        "learn_seconds": round(density.provenance.seconds, 1),
        "source": density.provenance.plan.source,
        "status": density.status.name,
        "box": {name: law.describe() for name, law in density.scope.named.items()},
        "starts": density.starts.describe(),
        "boundaries": list(density.provenance.boundaries),
    }
    return density, facts


def simulated(options: argparse.Namespace) -> dict:
    density, facts = obtained(SIMULATED_PROBLEM, options)
    found, draws = simulated_study(density, options)
    draw_posteriors(draws, options.out / "short_rate_posterior.png")
    return {"density": facts, **found}


def series(options: argparse.Namespace) -> dict:
    dates, rates = treasury_bills(options.floor)
    pairs = {name: obtained(problem, options) for name, problem in SERIES_PROBLEMS.items()}
    found, transforms = series_study({name: pair[0] for name, pair in pairs.items()}, rates)
    draw_series(dates, rates, transforms, options.out / "short_rate_series.png")
    return {"densities": {name: pair[1] for name, pair in pairs.items()}, **found}


PARTS = {"simulated": simulated, "series": series}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--replications", type=int, default=50)
    parser.add_argument("--length", type=int, default=200, help="transitions of a simulated path")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument(
        "--floor", type=float, default=0.005, help="rate at which the series is cut"
    )
    parser.add_argument("--preset", default="accurate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/short_rate"))
    return parser.parse_args()


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    options = parsed()
    options.out.mkdir(parents=True, exist_ok=True)
    shown = {name: str(value) if name == "out" else value for name, value in vars(options).items()}
    for part in options.parts:
        began = time.perf_counter()
        result = {"part": part, "options": shown, **PARTS[part](options)}
        result["seconds"] = round(time.perf_counter() - began, 1)
        (options.out / f"{part}.json").write_text(json.dumps(result, indent=2) + "\n")
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
