r"""Rows that are made again whenever they are needed, some at a time.

The Gram matrix is summed up over chunks of rows that are not centred, and the outer product of
their mean is taken off. That is usually a way to lose digits. Here it is not: under the current
density the rows have mean zero, since $\int\nabla_\theta P = 0$, so their sample mean is smaller
than they are by the square root of their number, or more, and so is what cancels.

Residuals are not made from the Gram matrix, in which small ones would drown, but by derivatives
along each candidate, in a second pass.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from .collocation import Points
from .devices import Layout
from .gram import accumulated, gram_matrix
from .pointwise import CACHED, centred, per_point, together
from .rows import AbstractLinearisation, AbstractRows


class _Function(eqx.Module):
    """What rows are derivatives of: the log-density, or with a weight, less so much of its rate."""

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
        """Its derivative in the parameters."""
        if self.weight is None:
            return self.ansatz.parameter_score(y, clock, x0)
        assert isinstance(self.ansatz, StandardisedAnsatz)
        _, score, slope = self.ansatz.linearised(y, clock, x0)
        return score - self.weight * slope

    def sums(self, chunk: int, y: Array, x0: Array, weight: Array) -> tuple[Array, Array]:
        """Sums of the outer products of rows, and of rows, a chunk at a time."""

        def of(y: Array, x0: Array, weight: Array) -> tuple[Array, Array]:
            rows = together(self.row, self.clock, y, x0)
            return gram_matrix(jnp.sqrt(weight)[:, None] * rows), weight @ rows

        return accumulated(of, chunk, y, x0, weight=weight)

    def pulled(self, chunk: int, y: Array, x0: Array, shares: Array) -> Float[Array, " m"]:
        """The sum of rows times shares: the derivative of a sum, without the rows."""

        def of(y: Array, x0: Array, shares: Array) -> Array:
            values = lambda theta: jax.vmap(lambda y, x0: self.value(theta, y, x0))(y, x0)
            return jax.grad(lambda theta: shares @ values(theta))(self.ansatz.theta)

        return accumulated(of, min(chunk, CACHED), y, x0, weight=shares)


class StreamedRows(AbstractRows):
    """Rows that are not held."""

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
        # Centred values, with their weights, add up to zero: the mean of the rows has no part.
        shares = jnp.sqrt(points.weight) * values
        return self.layout.total(pulled, points.y, points.x0, shares) / len(values)

    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        along = eqx.Partial(_along, self.function, change)
        return centred(per_point(along, self.function.clock, self.points), self.points)


class StreamedLinearisation(AbstractLinearisation):
    """Parameters at which to linearise; derivatives are taken when they are needed."""

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
    """Rows of the log-density, or with a weight, of it less so much of its rate."""
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
