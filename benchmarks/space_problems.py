"""SDEs that people bring, for which no density is known: name -> (SDE, start law, horizon)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

import diracflow as df
from diracflow.sde.laws import AbstractLaw

Problem = tuple[df.SDE, AbstractLaw, float]


def epidemic(population: float = 1e4) -> Problem:
    """Shares of susceptible, exposed and infected people, with demographic noise."""

    def rates(x):
        return jnp.stack([1.5 * x[0] * x[2], x[1], 0.5 * x[2]])

    # Columns: infection, end of incubation, recovery.
    changes = jnp.array([[-1.0, 0.0, 0.0], [1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])

    def diffusion(t, x):
        return changes * jnp.sqrt(jnp.maximum(rates(x), 1e-12) / population)[None]

    sde = df.SDE(lambda t, x: changes @ rates(x), diffusion, 3)
    return sde, df.Uniform([0.6, 0.02, 0.02], [0.9, 0.08, 0.08]), 4.0


def phases() -> Problem:
    """Four coupled phase oscillators."""
    frequencies = jnp.array([-0.6, -0.2, 0.2, 0.6])

    def drift(t, x):
        return frequencies + jnp.mean(jnp.sin(x[None, :] - x[:, None]), axis=1)

    return df.SDE(drift, 0.5 * jnp.ones(4), 4), df.Normal([0.0] * 4, [0.7] * 4), 3.0


def oscillators() -> Problem:
    """Two coupled mechanical oscillators with noise on the velocities."""

    def drift(t, x):
        q, v = x[:2], x[2:]
        return jnp.concatenate([v, -q - 0.3 * q**3 - 0.5 * (q - q[::-1]) - 0.4 * v])

    def diffusion(t, x):
        return jnp.concatenate([jnp.zeros((2, 2)), 0.5 * jnp.eye(2)])

    return df.SDE(drift, diffusion, 4), df.Normal([0.0] * 4, [0.7] * 4), 3.0


def lorenz(horizon: float = 0.25) -> Problem:
    """Lorenz's system of 1963 in its usual units."""

    def drift(t, x):
        a, b, c = x
        return jnp.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])

    starts = df.Normal([0.0, 0.0, 23.0], [6.0, 7.0, 6.0])
    return df.SDE(drift, 2.0 * jnp.ones(3), 3), starts, horizon


def chain(dim: int = 4) -> Problem:
    """Coupled double wells."""

    def drift(t, x):
        left, right = jnp.concatenate([x[:1], x[:-1]]), jnp.concatenate([x[1:], x[-1:]])
        return x - x**3 + 0.5 * (left - 2 * x + right)

    return df.SDE(drift, 0.7 * jnp.ones(dim), dim), df.Normal([0.0] * dim, [0.7] * dim), 2.0


def lorenz96(dim: int = 10) -> Problem:
    """Lorenz's system of 1996, with a forcing of 8."""

    def drift(t, x):
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + 8.0

    return df.SDE(drift, jnp.ones(dim), dim), df.Normal([2.3] * dim, [3.0] * dim), 0.2


def gene_switch() -> Problem:
    """Two genes that repress each other."""

    def drift(t, x):
        return 1.5 / (1 + 8 * x[::-1] ** 3) + 0.05 - x

    sde = df.SDE(drift, lambda t, x: 0.3 * jnp.diag(jnp.sqrt(x)), 2, domain=df.Positive())
    return sde, df.LogNormal([-0.5, -0.5], [0.4, 0.4]), 3.0


def star() -> Problem:
    """Three wells on a circle."""

    def potential(x):
        return 0.5 * (x @ x - 1) ** 2 - 0.4 * (x[0] ** 3 - 3 * x[0] * x[1] ** 2)

    drift = jax.grad(potential)
    sde = df.SDE(lambda t, x: -drift(x), 0.6 * jnp.ones(2), 2)
    return sde, df.Normal([0.0, 0.0], [0.6, 0.6]), 1.5


def heston_pair() -> Problem:
    """Two assets under Heston's model, all four noises correlated."""
    correlation = jnp.array(
        [
            [1.0, 0.5, -0.6, -0.3],
            [0.5, 1.0, -0.3, -0.5],
            [-0.6, -0.3, 1.0, 0.4],
            [-0.3, -0.5, 0.4, 1.0],
        ]
    )
    factor = jnp.linalg.cholesky(correlation)

    def drift(t, x):
        return jnp.concatenate([-x[2:] / 2, jnp.array([2.0, 3.0]) * (0.09 - x[2:])])

    def diffusion(t, x):
        sizes = jnp.sqrt(jnp.concatenate([x[2:], x[2:]])) * jnp.array([1.0, 1.0, 0.3, 0.4])
        return sizes[:, None] * factor

    domain = (df.Real(), df.Real(), df.Positive(), df.Positive())
    starts = [df.Normal(0.0, 0.1)] * 2 + [df.LogNormal(jnp.log(0.09), 0.25)] * 2
    return df.SDE(drift, diffusion, 4, domain=domain), df.Product(*starts), 0.5


def egg_box() -> Problem:
    """Eight wells in three dimensions, at the corners of a sheared box."""
    shear = jnp.array([[1.0, 0.3, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]])

    def potential(x):
        y = shear @ x
        return jnp.sum(0.25 * y**4 - 0.5 * y**2)

    slope = jax.grad(potential)
    sde = df.SDE(lambda t, x: -slope(x), 0.7 * jnp.ones(3), 3)
    return sde, df.Normal([0.0] * 3, [0.7] * 3), 2.0


def toggle() -> Problem:
    """A bistable drift in the plane that is not a gradient."""

    def drift(t, x):
        return jnp.stack([x[0] - x[0] ** 3 - 0.7 * x[1], 0.5 * x[0] - x[1]])

    return df.SDE(drift, 0.6 * jnp.ones(2), 2), df.Normal([0.0, 0.0], [0.7, 0.7]), 3.0


def from_model(model: df.models.Model) -> Problem:
    """A built-in model as a problem."""
    return model.sde, model.starts, model.horizon


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "epidemic": epidemic,
    "phases": phases,
    "oscillators": oscillators,
    "lorenz": lorenz,
    "lorenz-long": lambda: lorenz(0.5),
    "chain": chain,
    "chain6": lambda: chain(6),
    "chain10": lambda: chain(10),
    "lorenz96": lorenz96,
    "gene-switch": gene_switch,
    "star": star,
    "toggle": toggle,
    "egg-box": egg_box,
    "heston-pair": heston_pair,
    "plane": lambda: from_model(df.models.double_well(2)),
    "cycle": lambda: (*from_model(df.models.van_der_pol())[:2], 5.0),
}
