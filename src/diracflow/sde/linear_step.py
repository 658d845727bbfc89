r"""What a linear equation $dX = (AX + b)\,dt + \sigma\,dW$ does in a step, however stiff or short.

By halving and doubling: integrals over a short piece of the step are series, and two pieces of one
length make a longer one. The exponential is kept as $e^{Ah} - 1$, so that rounding stays in
proportion to what changes; doubled as it is, it would gain a bit of rounding with each doubling.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Halvings for a mean exponential, and terms of the series: exact to rounding where the product of
# length and slopes, halved so often, is at most 0.1.
_DOUBLINGS, _ORDER = 7, 8


class LinearStep(NamedTuple):
    r"""$e^{Ah} - 1$, $\int_0^1e^{Ahs}ds$ and $\int_0^he^{As}\Sigma e^{A^\top s}ds$."""

    change: Float[Array, "d d"]
    integral: Float[Array, "d d"]
    noise: Float[Array, "d d"]


def linear_step(
    slope: Float[Array, "d d"],
    noise: Float[Array, "d d"],
    length: Float[Array, ""],
    doublings: int,
) -> LinearStep:
    r"""The step of slopes $A$ and noise $\Sigma$ over some length."""
    short = length / 2**doublings
    a = slope * short
    integral = _integral(a)
    # Terms of the series: each is (A X + X A^T) h / k of the one before. Noise that comes through d
    # components shows in the term 2d - 1 first.
    term = added = noise * short
    for k in range(2, max(7, 2 * len(slope) + 2)):
        term = a @ term
        term = (term + term.T) / k
        added = added + term

    def double(_: int, step: LinearStep) -> LinearStep:
        change, integral, noise = step
        across = change @ noise
        moved = noise + across + across.T + across @ change.T
        return LinearStep(*_doubled(change, integral), noise + moved)

    return jax.lax.fori_loop(0, doublings, double, LinearStep(a @ integral, integral, added))


def mean_exponential(a: Float[Array, "d d"], doublings: int = _DOUBLINGS) -> Float[Array, "d d"]:
    r"""$\int_0^1 e^{as}ds$."""
    small = a / 2**doublings
    integral = _integral(small)
    start = (small @ integral, integral)
    return jax.lax.fori_loop(0, doublings, lambda _, pair: _doubled(*pair), start)[1]


def _integral(a: Float[Array, "d d"]) -> Float[Array, "d d"]:
    eye = jnp.eye(len(a), dtype=a.dtype)
    integral = eye
    for k in range(_ORDER, 1, -1):
        integral = eye + a @ integral / k
    return integral


def _doubled(change: Array, integral: Array) -> tuple[Array, Array]:
    return 2 * change + change @ change, integral + change @ integral / 2
