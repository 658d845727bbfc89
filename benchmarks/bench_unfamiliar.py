"""Does it work on SDEs that nothing here was made for, with the defaults?

None of these was looked at while sources, flows or steps were chosen. One JSON line for each SDE
and seed, as in `bench_restoring.py`: how far the training came, and the mean relative squared L2
error over eight starts against a spectral grid solution, next to that of the source alone. Where no
grid is affordable, in three dimensions, the certificate is all there is.

Run: python benchmarks/bench_unfamiliar.py --preset quick --limit 180
"""

import argparse
import json
from collections.abc import Callable
from statistics import fmean

import jax
import jax.numpy as jnp
import jax.random as jr

import diracflow as df
from bench_restoring import Case, grid_errors, learned, summary
from diracflow.density.summary import certificate_table
from diracflow.evaluate.spectral_grid import SpectralGrid

SHARES = (1 / 6, 1 / 2, 1.0)


def constant(size: float, dim: int) -> Callable:
    return lambda t, x: size * jnp.eye(dim)


def case(
    drift: Callable, noise: Callable, spread: float, horizon: float, half: list, n: int
) -> Case:
    """On a box that reaches `half` to either side of the origin, with `n` nodes along an axis."""
    grid = SpectralGrid([-side for side in half], half, n)
    times = [horizon * share for share in SHARES]
    return Case(df.SDE(drift, noise, len(half)), df.Normal(0.0, spread), times, grid)


def line_cases() -> dict[str, Case]:
    one = constant(1.0, 1)
    return {
        # A pendulum in a viscous fluid: wells without end, paths that hop.
        "pendulum": case(lambda t, x: -2 * jnp.sin(2 * x), one, 1.0, 3.0, [11.0], 401),
        # Three wells, walls as the fifth power.
        "three_wells": case(
            lambda t, x: -0.5 * x * (x**2 - 1) * (x**2 - 4), constant(0.8, 1), 1.0, 2.0, [4.5], 301
        ),
        # A well whose noise grows with the state.
        "loud_well": case(
            lambda t, x: x - x**3,
            lambda t, x: 0.5 * jnp.sqrt(1 + x**2)[:, None],
            *(1.0, 2.0, [5.0], 301),
        ),
        # Friction that does not grow: exponential tails.
        "dry_friction": case(lambda t, x: -2 * jnp.tanh(3 * x), one, 1.0, 2.0, [8.0], 301),
    }


def plane_cases() -> dict[str, Case]:
    def hopf(t, x):
        return (1 - x @ x) * x + 2 * jnp.stack([-x[1], x[0]])

    def neuron(t, x):
        v, w = x
        return jnp.stack([v - v**3 / 3 - w + 0.5, 0.3 * (v + 0.7 - 0.8 * w)])

    def duffing(t, x):
        return jnp.stack([x[1], x[0] - x[0] ** 3 - 0.5 * x[1]])

    def star(t, x):
        # Minus the gradient of |z^3 - 1|^2 / 6 in the complex plane: three wells on a circle.
        z = x[0] + 1j * x[1]
        slope = jnp.conj(z) ** 2 * (z**3 - 1)
        return -jnp.stack([slope.real, slope.imag])

    def crossed(t, x):
        one = jnp.ones(())
        return jnp.stack(
            [
                jnp.stack([one, 0.4 * jnp.tanh(x[1])]),
                jnp.stack([0.3 * jnp.sin(x[0]), 0.6 * one]),
            ]
        )

    return {
        # A limit cycle that turns evenly.
        "hopf": case(hopf, constant(0.5, 2), 0.7, 2.0, [3.5, 3.5], 91),
        # FitzHugh and Nagumo's, excitable.
        "neuron": case(neuron, constant(0.4, 2), 1.0, 3.0, [5.5, 4.5], 101),
        # A double well with inertia, and noise on both components.
        "duffing_both": case(duffing, constant(0.6, 2), 0.8, 2.0, [4.5, 5.0], 101),
        "star": case(star, constant(0.7, 2), 0.7, 1.5, [2.8, 2.8], 101),
        # Correlated noise that depends on the state, in a linear drift.
        "crossed": case(lambda t, x: -x, crossed, 1.0, 2.0, [7.0, 6.0], 91),
    }


def lorenz(t, x):
    """The chaotic system of Lorenz, in units of ten."""
    u, v, w = x
    return jnp.stack([10 * (v - u), u * (28 - 10 * w) - v, 10 * u * v - 8 / 3 * w])


SPACE = {
    # A law around the attractor's middle; neighbours part by a factor of e within a time of one.
    "lorenz": (
        df.SDE(lorenz, constant(0.5, 3), 3),
        df.Normal(jnp.array([0.0, 0.0, 2.4]), 0.3),
        0.3,
    ),
}


def bench(name: str, preset: str, seed: int, limit: float) -> dict:
    options = {"key": jr.key(seed), "preset": preset, "max_seconds": limit, "certify": False}
    found = (line_cases() | plane_cases()).get(name)
    problem = SPACE[name] if found is None else (found.sde, found.starts, found.times[-1])
    density, seconds = learned(*problem, **options)
    rows = {} if found is None else grid_errors(found, density, seed)
    line = {"case": name, "preset": preset, "seed": seed, **summary(density, seconds, rows)}
    table = certificate_table(density, jr.key(2000)) if density.horizon > 0 else []
    last = [row["bound"] for row in table if row["t"] == max(r["t"] for r in table)]
    return line | {"bound_at_the_end": float(f"{fmean(last):.2g}") if last else None}


def _main() -> None:
    names = [*line_cases(), *plane_cases(), *SPACE]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names))
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for each training")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in options.cases or names:
        if name not in names:
            parser.error(f"no case {name!r}; there are {', '.join(names)}")
        for seed in options.seeds:
            print(json.dumps(bench(name, options.preset, seed, options.limit)), flush=True)


if __name__ == "__main__":
    _main()
