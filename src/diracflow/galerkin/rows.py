r"""Rows of the least-squares problem: what the points say of a change of the parameters.

Rows are tables, or they are streamed: made again, some at a time, whenever they are needed. Tables
of $N$ rows and $M$ columns are faster; streamed rows take memory for a chunk of them only.
"""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from .devices import Layout
from .gram import gram_matrix


class AbstractRows(eqx.Module):
    """One row for each point, centred, and the forcing that rows are to explain."""

    forcing: eqx.AbstractVar[Float[Array, " n"]]
    layout: eqx.AbstractVar[Layout]

    @abc.abstractmethod
    def gram(self) -> Float[Array, "m m"]:
        """Mean of the outer products of rows with themselves."""

    @abc.abstractmethod
    def moment(self, values: Float[Array, " n"]) -> Float[Array, " m"]:
        """Mean of the rows times centred values."""

    @abc.abstractmethod
    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        """Every row times a change of the parameters."""


class Rows(AbstractRows):
    """Jacobian and forcing at the collocation points, centred."""

    # Abstract fields are no fields, whatever the types say.
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
    """Log-density and forcing to first order in the parameters."""

    forcing: eqx.AbstractVar[Float[Array, " n"]]

    @abc.abstractmethod
    def implicit(self, weight: Float[Array, ""]) -> AbstractRows:
        r"""Rows of the equation $q(\theta+\eta) - wf(\theta+\eta) = \ldots$ to first order."""

    @abc.abstractmethod
    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        """Change of the log-density with the parameters."""

    @abc.abstractmethod
    def changes(self, change: Float[Array, " m"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Changes of the log-density and of the forcing with the parameters."""


class Linearisation(AbstractLinearisation):
    """Rows, and the derivative of the forcing in the parameters, centred."""

    jacobian: Float[Array, "n m"]
    forcing: Float[Array, " n"]
    slopes: Float[Array, "n m"]
    layout: Layout = eqx.field(static=True, default=Layout())

    def implicit(self, weight: Float[Array, ""]) -> Rows:
        jacobian = self.jacobian - weight * self.slopes
        return Rows(jacobian=jacobian, forcing=self.forcing, layout=self.layout)

    def times(self, change: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.jacobian @ change

    def changes(self, change: Float[Array, " m"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return self.jacobian @ change, self.slopes @ change
