r"""Streamed rows, which are recomputed chunk by chunk whenever they are needed.

The Gram matrix is accumulated over chunks of rows that are not centred, and the outer product of
their mean is subtracted. In general this loses digits. Here it does not: under the current density
the rows have mean zero, since $\int\nabla_\theta P = 0$, so their sample mean is smaller than the
rows by a factor of at least the square root of their number.

Residuals come from directional derivatives along each candidate, in a second pass. Computed from
the Gram matrix, small residuals would be lost to rounding.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from .collocation import CACHED, Points, centred, per_point, per_row
from .devices import Layout
from .rows import AbstractLinearisation, AbstractRows, gram_matrix


def accumulated(function: Callable, chunk: int, *arrays: Array, weight: Float[Array, " n"]) -> Any:
    """Return the sum of `function(*arrays, weight)` over chunks of rows.

    Rows of weight zero must not contribute: the last chunk is padded with them, so that `function`
    is compiled for one number of rows only.
    """
    rows = len(weight)
    chunk = min(chunk, rows)
    padding = -rows % chunk
    indices = jnp.arange(rows + padding) % rows
    parts = [array[indices].reshape(-1, chunk, *array.shape[1:]) for array in arrays]
    parts.append(jnp.pad(weight, (0, padding)).reshape(-1, chunk))
    shapes = jax.eval_shape(function, *(part[0] for part in parts))
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    step = lambda total, part: (jax.tree.map(jnp.add, total, function(*part)), None)
    return jax.lax.scan(step, zero, parts)[0]


class _Function(eqx.Module):
    """The function whose gradients are the rows: log-density minus `weight` times its rate."""

    ansatz: AbstractAnsatz  # with the parameters at which derivatives are taken
    clock: Float[Array, ""]
    weight: Float[Array, ""] | None

    def value(self, theta: Array, y: Array, x0: Array) -> Float[Array, ""]:
        ansatz = self.ansatz.at(theta)
        if self.weight is None:
            return ansatz.log_density(y, self.clock, x0)
        assert isinstance(ansatz, StandardisedAnsatz)
        log_ratio, rate = ansatz.log_ratio_and_rate(y, self.clock, x0)
        return log_ratio - self.weight * rate

    def row(self, y: Array, clock: Array, x0: Array) -> Float[Array, " m"]:
        """Return the gradient in the parameters."""
        if self.weight is None:
            return self.ansatz.parameter_score(y, clock, x0)
        assert isinstance(self.ansatz, StandardisedAnsatz)
        _, score, rate_gradient = self.ansatz.linearised(y, clock, x0)
        return score - self.weight * rate_gradient

    def sums(self, chunk: int, y: Array, x0: Array, weight: Array) -> tuple[Array, Array]:
        """Return the sums of the outer products of rows, and of rows, chunk by chunk."""

        def of(y: Array, x0: Array, weight: Array) -> tuple[Array, Array]:
            rows = per_row(self.row, self.clock, y, x0)
            return gram_matrix(jnp.sqrt(weight)[:, None] * rows), weight @ rows

        return accumulated(of, chunk, y, x0, weight=weight)

    def pulled(self, chunk: int, y: Array, x0: Array, shares: Array) -> Float[Array, " m"]:
        """Return the sum of rows times shares, as a gradient, without forming the rows."""

        def of(y: Array, x0: Array, shares: Array) -> Array:
            values = lambda theta: jax.vmap(lambda y, x0: self.value(theta, y, x0))(y, x0)
            return jax.grad(lambda theta: shares @ values(theta))(self.ansatz.theta)

        return accumulated(of, min(chunk, CACHED), y, x0, weight=shares)


class StreamedRows(AbstractRows):
    """Rows that are not stored."""

    function: _Function
    points: Points
    forcing: Float[Array, " n"]
    layout: Layout = eqx.field(static=True)

    def gram(self) -> Float[Array, "m m"]:
        points, n = self.points, len(self.forcing)
        sums = eqx.Partial(self.function.sums, self.layout.chunk)
        squares, total = self.layout.total(sums, points.y, points.x0, points.weight)
        mean = total / n
        return squares / n - jnp.outer(mean, mean)

    def moment(self, values: Float[Array, " n"]) -> Float[Array, " m"]:
        points = self.points
        pulled = eqx.Partial(self.function.pulled, self.layout.chunk)
        # Weighted centred values add up to zero, so the mean of the rows does not contribute.
        shares = jnp.sqrt(points.weight) * values
        return self.layout.total(pulled, points.y, points.x0, shares) / len(values)

    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        along = eqx.Partial(_along, self.function, change)
        return centred(per_point(along, self.function.clock, self.points), self.points)


class StreamedLinearisation(AbstractLinearisation):
    """A linearisation whose derivatives are computed when they are needed."""

    ansatz: StandardisedAnsatz
    clock: Float[Array, ""]
    points: Points
    forcing: Float[Array, " n"]

    def implicit(self, weight: Float[Array, ""]) -> StreamedRows:
        return streamed(self.ansatz, self.clock, self.points, self.forcing, weight)

    @eqx.filter_jit
    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        return streamed(self.ansatz, self.clock, self.points, self.forcing).times(change)

    def changes(self, change: Float[Array, " m"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        along = eqx.Partial(_both_along, self.ansatz, change)
        return centred(per_point(along, self.clock, self.points), self.points)


def streamed(
    ansatz: AbstractAnsatz,
    clock: Float[Array, ""],
    points: Points,
    forcing: Float[Array, " n"],
    weight: Float[Array, ""] | None = None,
) -> StreamedRows:
    """Return the rows of the log-density minus `weight` times its rate; `None` means zero."""
    function = _Function(ansatz, clock, weight)
    return StreamedRows(function=function, points=points, forcing=forcing, layout=points.layout)


def _along(function: _Function, change: Array, y: Array, clock: Array, x0: Array) -> Array:
    value = lambda theta: function.value(theta, y, x0)
    return jax.jvp(value, (function.ansatz.theta,), (change,))[1]


def _both_along(
    ansatz: StandardisedAnsatz, change: Array, y: Array, clock: Array, x0: Array
) -> tuple[Array, Array]:
    values = lambda theta: ansatz.at(theta).log_ratio_and_rate(y, clock, x0)
    return jax.jvp(values, (ansatz.theta,), (change,))[1]
