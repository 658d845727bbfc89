r"""Exact steps of $dX = (AX + b)\,dt + \sigma\,dW$, for any length and stiffness.

The method is scaling and doubling: integrals over a short fraction of the step are computed as
series, and then doubled to the full length. We store $e^{Ah} - 1$ instead of $e^{Ah}$, so that
rounding errors are relative to the change. Otherwise each doubling would lose one bit.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Halvings of a mean exponential, and terms of the series. The result is exact to rounding if the
# norm of the exponent is at most 0.1 after the halvings.
_DOUBLINGS, _ORDER = 7, 8


class LinearStep(NamedTuple):
    r"""$e^{Ah} - 1$, $\int_0^1e^{Ahs}ds$ and $\int_0^he^{As}\Sigma e^{A^\top s}ds$."""

    change: Float[Array, "d d"]
    integral: Float[Array, "d d"]
    noise: Float[Array, "d d"]


def linear_step(
    jacobian: Float[Array, "d d"],
    noise: Float[Array, "d d"],
    length: Float[Array, ""],
    doublings: int,
) -> LinearStep:
    r"""Return the step of length $h$ for $A$ = `jacobian` and $\Sigma$ = `noise`.

    The length is halved `doublings` times before the series is applied.
    """
    short = length / 2**doublings
    a = jacobian * short
    integral = _integral(a)
    # The term k of the series is (A X + X A^T) h / k with X the previous one. Noise that reaches a
    # component through d components first appears in the term 2d - 1.
    term = added = noise * short
    for k in range(2, max(7, 2 * len(jacobian) + 2)):
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
    r"""Return $\int_0^1 e^{as}ds$."""
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
