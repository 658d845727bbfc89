"""How well does a learned density guide bridges, next to proposals that need no density?

The effective share of weighted paths, for proposals of the same form and steps, weighted likewise
against the same chain of Euler steps:

- `learned`, `exact`: the drift b + Σ grad log ρ of Doob's transform;
- `brownian bridge`: a straight pull (x1 - x) / (t - s), the drift ignored;
- `drift and pull`: the SDE's drift plus the same pull;
- `learned, own steps`: as `learned`, but weighted against the density's own short transitions.

On Beneš the conditioned process is a Brownian bridge, so that the second is exact by luck; on the
double well it is not.

Run: python benchmarks/bench_bridge.py benes well --steps 20 200
"""

import argparse
import json

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import diracflow as df

jax.config.update("jax_enable_x64", True)
PATHS = 4000


def benes() -> tuple:
    model = df.models.benes()
    learned = df.learn(model.sde, model.starts, model.horizon, key=jr.key(0), preset="quick")
    ends = [([0.0, 0.0], [1.0, 1.0], 3.0), ([0.5, -0.2], [-2.0, 1.5], 3.0)]
    return learned, model.exact, ends


def well() -> tuple:
    sde = df.SDE(lambda t, x: -4 * x * (x**2 - 1), lambda t, x: jnp.eye(1), 1)
    learned = df.learn(sde, df.Normal(0.0, 1.0), 1.0, key=jr.key(0), preset="quick")
    return learned, None, [([-1.0], [1.0], 1.0), ([-1.0], [0.0], 0.5), ([-1.0], [-1.0], 1.0)]


def proposals(learned: df.TransitionDensity, exact: df.AbstractTransitionDensity | None) -> dict:
    """Name: (guiding density, SDE of the proposal, transition over one step)."""
    sde, pull = learned.sde, df.models.brownian(learned.dim)
    euler = df.SourceDensity(df.EulerSource(sde))
    ways = {
        "learned": (learned, sde, euler),
        "learned, own steps": (learned, sde, learned),
        "brownian bridge": (pull.exact, pull.sde, euler),
        "drift and pull": (pull.exact, sde, euler),
    }
    return ways if exact is None else ways | {"exact": (exact, sde, euler)}


def bench(name: str, steps: list[int]) -> None:
    learned, exact, ends = {"benes": benes, "well": well}[name]()
    for x0, x1, t in ends:
        known = learned if exact is None else exact
        case = {"problem": name, "x0": x0, "x1": x1, "t": t, "paths": PATHS}
        case["log_prob"] = round(float(known.log_prob(np.array(x1), t, np.array(x0))), 4)
        for count in steps:
            for way, (guide, sde, local) in proposals(learned, exact).items():
                found = df.bridge(jr.key(1), guide, x0, x1, t, count, PATHS, sde=sde, local=local)
                share, log_density = found.effective_share, found.log_density
                result = {"effective_share": round(share, 4), "log_density": round(log_density, 4)}
                print(json.dumps({**case, "steps": count, "proposal": way, **result}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="+", choices=["benes", "well"])
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 200])
    options = parser.parse_args()
    for problem in options.problems:
        bench(problem, options.steps)
