r"""Rows of the least-squares problem, one for each collocation point.

Rows are either stored or streamed. A stored matrix of $N$ rows and $M$ columns is faster. Streamed
rows are recomputed chunk by chunk whenever they are needed, and only need memory for one chunk.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

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
