r"""Rows of the least-squares problem, one for each collocation point, and their assembly.

With $q = \log P$, the Dirac--Frenkel principle determines the velocity $\eta$ of the parameters
that brings $\nabla_\theta q\cdot\eta$ closest to the forcing $f$. The forcing is the Fokker--Planck
rate minus the rate that the moving source supplies.

Rows are either stored or streamed. A stored matrix of $N$ rows and $M$ columns is faster. Streamed
rows are recomputed chunk by chunk whenever they are needed, and only need memory for one chunk.
Their Gram matrix is accumulated over chunks of rows that are not centred, and the outer product of
their mean is subtracted. In general this loses digits. Here it does not: under the current density
the rows have mean zero, since $\int\nabla_\theta P = 0$, so their sample mean is smaller than the
rows by a factor of at least the square root of their number. Residuals come from directional
derivatives along each candidate, in a second pass. Computed from the Gram matrix, small residuals
would be lost to rounding.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from .collocation import CACHED, Points, centred, per_point, per_row, sharing_frames
from .devices import Layout

# Column blocks of the Gram matrix. Mirroring blocks below the diagonal saves 3/8 of the work.
_BLOCKS = 4


def gram_matrix(jacobian: Float[Array, "n m"]) -> Float[Array, "m m"]:
    """Return `jacobian.T @ jacobian`, computing each pair of column blocks once."""
    columns = jnp.array_split(jacobian, _BLOCKS, axis=1)
    upper = {(i, j): columns[i].T @ columns[j] for i in range(_BLOCKS) for j in range(i, _BLOCKS)}
    return jnp.block(
        [[upper[i, j] if i <= j else upper[j, i].T for j in range(_BLOCKS)] for i in range(_BLOCKS)]
    )


class AbstractRows(eqx.Module):
    """Centred rows, and the forcing as the right-hand side."""

    forcing: eqx.AbstractVar[Float[Array, " n"]]
    layout: eqx.AbstractVar[Layout]

    @abc.abstractmethod
    def gram(self) -> Float[Array, "m m"]:
        """Return the mean of the outer products of rows with themselves."""

    @abc.abstractmethod
    def moment(self, values: Float[Array, " n"]) -> Float[Array, " m"]:
        """Return the mean of the rows times centred values."""

    @abc.abstractmethod
    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        """Return every row times a change of the parameters."""


class Rows(AbstractRows):
    """Stored rows: Jacobian and forcing at the collocation points, centred."""

    # mypy takes the abstract variables of the base class for fields with defaults.
    jacobian: Float[Array, "n m"]  # type: ignore[misc]
    forcing: Float[Array, " n"]
    layout: Layout = eqx.field(static=True, default=Layout())

    def gram(self) -> Float[Array, "m m"]:
        return self.layout.whole(gram_matrix(self.jacobian)) / len(self.forcing)

    def moment(self, values: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.layout.whole(self.jacobian.T @ values) / len(values)

    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.jacobian @ change


class AbstractLinearisation(eqx.Module):
    """Linearisation of log-density and total rate in the parameters."""

    forcing: eqx.AbstractVar[Float[Array, " n"]]

    @abc.abstractmethod
    def implicit(self, weight: Float[Array, ""]) -> AbstractRows:
        r"""Return the rows of $q(\theta+\eta) - wf(\theta+\eta)$, linearised in $\eta$."""

    @abc.abstractmethod
    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        """Return the change of the log-density for a change of the parameters."""

    @abc.abstractmethod
    def changes(self, change: Float[Array, " m"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return the changes of log-density and total rate for a change of the parameters."""


class Linearisation(AbstractLinearisation):
    """Stored Jacobians of log-density and total rate, centred."""

    jacobian: Float[Array, "n m"]
    forcing: Float[Array, " n"]
    rate_jacobian: Float[Array, "n m"]
    layout: Layout = eqx.field(static=True, default=Layout())

    def implicit(self, weight: Float[Array, ""]) -> Rows:
        jacobian = self.jacobian - weight * self.rate_jacobian
        return Rows(jacobian=jacobian, forcing=self.forcing, layout=self.layout)

    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.jacobian @ change

    def changes(self, change: Float[Array, " m"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return self.jacobian @ change, self.rate_jacobian @ change


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
        return evaluate(along, self.function.clock, self.points)


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
        return evaluate(along, self.clock, self.points)


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


@eqx.filter_jit
def assemble(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> tuple[AbstractRows, Float[Array, " n"]]:
    r"""Return Jacobian and forcing at all points, and the log-ratio of the density to the source.

    Under the current density Jacobian and forcing have mean zero for every start, since both
    $\theta$ and the Fokker--Planck equation preserve $\int P = 1$. Subtracting the sample mean
    therefore removes only noise.
    """
    at_theta, layout = ansatz.at(theta), points.layout
    log_ratio, forcing = evaluate(at_theta.log_ratio_and_forcing, clock, points)
    if layout.chunk is not None:
        return streamed(at_theta, clock, points, forcing), log_ratio
    jacobian = evaluate(at_theta.parameter_score, clock, points)
    return Rows(jacobian=jacobian, forcing=forcing, layout=layout), log_ratio


@sharing_frames
@eqx.filter_jit
def linearise(
    ansatz: StandardisedAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> AbstractLinearisation:
    """Return Jacobian, forcing and the parameter Jacobian of the total rate at all points."""
    at_theta, layout = ansatz.at(theta), points.layout
    if layout.chunk is not None:
        _, forcing = evaluate(at_theta.log_ratio_and_forcing, clock, points)
        return StreamedLinearisation(ansatz=at_theta, clock=clock, points=points, forcing=forcing)
    forcing, jacobian, rate = per_point(at_theta.linearised, clock, points)
    jacobian, forcing, rate = centred((jacobian, forcing, rate), points)
    return Linearisation(jacobian=jacobian, forcing=forcing, rate_jacobian=rate, layout=layout)


def evaluate(function: Callable, clock: Float[Array, ""], points: Points) -> Any:
    """Return `function(y, clock, x0)` at all points, centred."""
    return centred(per_point(function, clock, points), points)


@eqx.filter_jit
def source_forcings(
    ansatz: StandardisedAnsatz, clocks: Float[Array, " k"], points: Points
) -> Float[Array, " k"]:
    """Return the root mean square of the forcing of the source alone, at several clocks."""

    def at(clock: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sqrt(jnp.mean(evaluate(ansatz.source_forcing, clock, points) ** 2))

    return jax.lax.map(at, clocks)
