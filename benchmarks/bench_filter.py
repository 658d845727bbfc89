"""How fast are the particle filter and the smoother, and how good are guided jumps?

- `well`: a double well observed rarely with little noise. Effective share, time and standard
  deviation of the log-evidence with bootstrap and with guided jumps, and the ratio of effective
  particles in equal time.
- `speed`: Beneš in the plane, one component observed; the compiled filter and smoother.
- `euler`: the double well with more noise, against the bootstrap filter of the package `particles`
  with Euler steps between observations, in equal processor time. Needs the package `particles`.

Learned densities (`quick`, seed 0) are kept in a folder and loaded again. Times are the best of
several runs, after compilation; ratios are of processor times.

Run: python benchmarks/bench_filter.py well speed euler --models /tmp
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm

import diracflow as df

jax.config.update("jax_enable_x64", True)
WELL = df.SDE(drift=lambda t, x: 4 * (x - x**3), diffusion=1.0, dim=1)
START = df.Normal(0.0, 1.0)
RUNS = 20


def learned(name: str, folder: Path) -> df.AbstractTransitionDensity:
    model = df.models.benes()
    sde, starts = (WELL, START) if name == "well" else (model.sde, model.starts)
    path = folder / f"{name}.dflow"
    if not path.exists():
        df.learn(sde, starts, 1.0, key=0, preset="quick").save(path)
    return df.load(path, sde=sde)


def seconds(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Return elapsed time and processor time, which other programs hardly change."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter(), time.process_time()
        jax.block_until_ready(run())
        times.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    elapsed, busy = map(min, zip(*times, strict=True))
    return {"seconds": round(elapsed, 4), "cpu_seconds": round(busy, 4)}


def observed(density: df.AbstractTransitionDensity, gap: float, count: int, noise: float) -> tuple:
    """Return times, observations of the first component and their log-likelihood."""
    times = gap * np.arange(1, count + 1)
    [states] = np.asarray(df.simulate(1, density, times, np.ones(density.dim)).states)
    seen = states[:, :1] + noise * np.asarray(jr.normal(jr.key(2), (count, 1)))
    return times, seen, lambda x, y: norm.logpdf(y[0], x[0], noise)


def filtering(density: df.AbstractTransitionDensity, data: tuple, particles: int, proposal: str):
    """Return a compiled filter: evidence and effective shares as a function of the key."""
    law = START if density.dim == 1 else df.models.benes().starts

    def run(key):
        found = df.filter(key, density, *data, particles, initial=law, proposal=proposal)
        return found.log_evidence, found.effective_shares, found.guided

    return jax.jit(run)


def bench_well(folder: Path, proposals: list[str]) -> None:
    density, rates = learned("well", folder), {}
    data = observed(density, 1.0, 40, 0.02)
    for proposal in proposals:
        run = filtering(density, data, 2000, proposal)
        found = [run(key) for key in jr.split(jr.key(3), RUNS)]
        share = np.mean([shares for _, shares, _ in found])
        used = seconds(lambda run=run: run(jr.key(0)), 5)
        rates[proposal] = share / used["cpu_seconds"]
        result = {"share": round(float(share), 4), **used}
        result["deviation"] = round(float(np.std([e for e, *_ in found], ddof=1)), 4)
        result["guided_jumps"] = round(float(np.mean([g for *_, g in found])), 3)
        result["gain_in_equal_time"] = round(rates[proposal] / rates[proposals[0]], 2)
        print(json.dumps({"case": "well", "proposal": proposal, **result}), flush=True)


def bench_speed(folder: Path, proposals: list[str]) -> None:
    density = learned("benes", folder)
    data = observed(density, 0.2, 500, 0.5)
    for proposal in proposals:
        run = filtering(density, data, 10_000, proposal)
        run(jr.key(0))
        used = seconds(lambda run=run: run(jr.key(1)), 2)
        case = {"case": "speed", "proposal": proposal, "particles": 10_000, "observations": 500}
        print(json.dumps({**case, **used}), flush=True)
    few = data[0][:200], data[1][:200], data[2]
    law = df.models.benes().starts
    smooth = lambda: df.smooth(jr.key(1), density, *few, 1000, initial=law)
    smooth()
    result = {"paths": 1000, "times": 200, **seconds(lambda: smooth().paths, 2)}
    result["fewest_distinct"] = round(float(np.min(smooth().distinct)), 3)
    print(json.dumps({"case": "smoother", **result}), flush=True)


def bench_euler(folder: Path, substeps: int, gap: float = 0.75, noise: float = 0.3) -> None:
    density = learned("well", folder)
    data = observed(density, gap, 40, noise)
    run = filtering(density, data, 4000, "auto")
    ours = [float(run(key)[0]) for key in jr.split(jr.key(3), RUNS)]
    used = seconds(lambda: run(jr.key(0)), 5)["cpu_seconds"]
    theirs = euler_filter(data[1][:, 0], gap, noise, substeps)
    theirs(100)
    # The time is proportional to the number of particles, for many of them.
    trial = seconds(lambda: theirs(5_000), 2)["cpu_seconds"]
    count = max(10, int(5_000 * used / trial))
    evidences = [theirs(count) for _ in range(RUNS)]
    spent = seconds(lambda: theirs(count), 3)["cpu_seconds"]
    result = {"cpu_seconds": used, "particles_cpu_seconds": spent}
    result |= {"particles_count": count, "substeps": substeps}
    result |= {"evidence": round(np.mean(ours), 3), "particles_evidence": np.mean(evidences)}
    deviations = [float(np.std(values, ddof=1)) for values in (ours, evidences)]
    result |= {"deviation": deviations[0], "particles_deviation": deviations[1]}
    print(json.dumps({"case": "euler", **result}), flush=True)


def euler_filter(seen: np.ndarray, gap: float, noise: float, substeps: int):
    """Return the bootstrap filter of `particles`: the log-evidence for a number of particles."""
    import particles
    from particles import distributions, state_space_models

    h = gap / substeps

    class EulerWalk(distributions.ProbDist):
        def __init__(self, x: np.ndarray):
            self.x = x

        def rvs(self, size: int | None = None) -> np.ndarray:
            x = self.x
            for _ in range(substeps):
                x = x + 4 * h * (x - x**3) + np.sqrt(h) * np.random.normal(size=size)  # noqa: NPY002
            return x

    class Well(state_space_models.StateSpaceModel):
        def PX0(self):
            # The first observation is one gap after the start.
            return Begin()

        def PX(self, t, xp):
            return EulerWalk(xp)

        def PY(self, t, xp, x):
            return distributions.Normal(loc=x, scale=noise)

    class Begin(distributions.ProbDist):
        def rvs(self, size: int | None = None) -> np.ndarray:
            return EulerWalk(np.random.normal(size=size)).rvs(size)  # noqa: NPY002

    def run(count: int) -> float:
        model = state_space_models.Bootstrap(ssm=Well(), data=seen)
        filtered = particles.SMC(fk=model, N=count, resampling="systematic", verbose=False)
        filtered.run()
        return float(filtered.logLt)

    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", choices=["well", "speed", "euler"])
    parser.add_argument("--models", type=Path, default=Path("."))
    parser.add_argument("--proposals", nargs="+", default=["bootstrap", "guided", "auto"])
    parser.add_argument("--substeps", type=int, default=64)
    options = parser.parse_args()
    for case in options.cases:
        if case == "euler":
            bench_euler(options.models, options.substeps)
        else:
            {"well": bench_well, "speed": bench_speed}[case](options.models, options.proposals)
