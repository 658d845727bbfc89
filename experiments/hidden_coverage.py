r"""Coverage of 90 % intervals of parameters and of a component that is never seen.

Parameters are drawn from the prior, a path from them by Euler steps that are much shorter
than the gaps (not by the density), and noisy observations of its first component. `diracflow.infer`
with a learned density gives intervals of the parameters and of the hidden component at each time.
Over many paths they hold the truth in 90 % of the cases, if inference and density are right.

Run: python experiments/hidden_coverage.py langevin --paths 60
"""

import argparse
import json
import pathlib
import runpy
import time
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import diracflow as df

FOLDER = pathlib.Path(__file__).parents[1] / "examples"
FILES = {"langevin": "langevin_velocity.py", "heston": "heston_variance.py"}
GAPS = {"langevin": 0.4, "heston": 1 / 52}
STEPS = 200  # of the simulation within each gap


def path(key: jax.Array, sde: df.SDE, first: jax.Array, gap: float, count: int) -> np.ndarray:
    """States after each gap, by Euler steps; a variance is kept positive."""
    dt = gap / STEPS

    def step(x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        noise = jnp.sqrt(dt) * jr.normal(key, (sde.noise_dim,))
        new = x + sde.drift(0.0, x) * dt + sde.diffusion(0.0, x) @ noise
        new = jnp.where(
            jnp.array([not isinstance(d, df.Real) for d in sde.domain]), jnp.abs(new), new
        )
        return new, new

    states = jax.jit(lambda: jax.lax.scan(step, first, jr.split(key, count * STEPS))[1])()
    return np.asarray(states[STEPS - 1 :: STEPS])


def covered(index: int, names: dict, density: object, options: argparse.Namespace) -> dict:
    """Whether each parameter lies in its interval, and the share of times for the component."""
    keys = jr.split(jr.fold_in(jr.key(options.seed), index), 5)
    pairs = zip(jr.split(keys[0], len(names["PRIOR"])), names["PRIOR"].items(), strict=True)
    true = {name: float(law.expand(1).sample(key)[0]) for key, (name, law) in pairs}
    starts, error, gap = names["STARTS"].expand(2), names["ERROR"], GAPS[options.case]
    truth = path(keys[1], names["SDE"].at(true), starts.sample(keys[2]), gap, options.length)
    seen = truth[:, :1] + error * np.asarray(jr.normal(keys[3], (options.length, 1)))
    times = gap * np.arange(1, options.length + 1)
    tree = df.infer(
        *(keys[4], density, times, seen, names["PRIOR"]),
        **{"observe": names["observe"], "particles": options.particles},
        **{"chains": 2, "draws": options.draws, "warmup": options.warmup},
    )
    both = ("chain", "draw")
    low, high = tree["hidden"]["states"].quantile([0.05, 0.95], both).values
    row = {"hidden": float(np.mean((low <= truth) & (truth <= high), axis=0)[1])}
    for name, value in true.items():
        ends = tree.posterior[name].quantile([0.05, 0.95]).values
        row[name] = float(ends[0] <= value <= ends[1])
    return row | {"ess": tree.attrs["ess"], "r_hat": tree.attrs["r_hat"]}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # R-hat is reported
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=FILES)
    parser.add_argument("--paths", type=int, default=60)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--particles", type=int, default=50)
    parser.add_argument("--draws", type=int, default=150)
    parser.add_argument("--warmup", type=int, default=75)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="a model file, to spare the training")
    options = parser.parse_args()
    names, began = runpy.run_path(str(FOLDER / FILES[options.case])), time.perf_counter()
    density = df.load(options.model, sde=names["SDE"]) if options.model else names["learned"]()
    rows = []
    for index in range(options.paths):
        rows.append(covered(index, names, density, options))
        print(json.dumps(rows[-1]), flush=True)
    means = {name: round(float(np.mean([row[name] for row in rows])), 3) for name in rows[0]}
    deviation = float(np.std([row["hidden"] for row in rows]) / len(rows) ** 0.5)
    seconds = round(time.perf_counter() - began)
    result = {"hidden_standard_error": round(deviation, 4), "seconds": seconds}
    print(json.dumps({**vars(options), **means, **result}))
