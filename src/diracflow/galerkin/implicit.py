r"""Implicit equations for the parameters, solved by least squares over the points.

An implicit stage asks for parameters with $q(\theta) - wf(\theta) = v$ at all points, where $v$ is
known. They are found by Gauss--Newton iterations with one linearisation for all stages of a step,
so an iteration costs no more than an evaluation of $q$ and $f$ and a back substitution. The
equation holds between functions, not between velocities of parameters: how the Jacobian changes
along the step is accounted for by the iteration itself.
"""

import equinox as eqx
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from ..flow.ansatz import StandardisedAnsatz
from .assembly import evaluate_rate
from .collocation import Points
from .rows import AbstractLinearisation, AbstractRows
from .solve import NormalEquations, normal_equations
from .velocity import root_mean_square


class System(eqx.Module):
    r"""The linearised stage equation $J - wF$ and its normal equations."""

    linearisation: AbstractLinearisation
    rows: AbstractRows
    normal: NormalEquations


class Factor(eqx.Module):
    """A Cholesky factor of the regularised normal equations."""

    cholesky: Float[Array, "m m"]
    shift: Float[Array, ""]

    def solve(self, moment: Float[Array, " m"]) -> Float[Array, " m"]:
        """The solution for a right-hand side."""
        return cho_solve((self.cholesky, False), moment)


class Iterate(eqx.Module):
    """Parameters after one more iteration, and values there."""

    theta: Float[Array, " m"]
    log_ratio: Float[Array, " n"]
    forcing: Float[Array, " n"]
    size: Float[Array, ""]  # of the change of the log-density, root mean square, in nats


@eqx.filter_jit
def system(linearisation: AbstractLinearisation, weight: Float[Array, ""]) -> System:
    """The system for the weight `w` of the forcing."""
    rows = linearisation.implicit(weight)
    return System(linearisation, rows, normal_equations(rows))


@eqx.filter_jit
def factor(normal: NormalEquations, regularisation: Float[Array, ""]) -> Factor:
    """Factorise for one regularisation."""
    return Factor(*normal.factor(regularisation))


@eqx.filter_jit
def iterate(
    ansatz: StandardisedAnsatz,
    theta: Float[Array, " m"],
    clock: Float[Array, ""],
    points: Points,
    equation: tuple[System, Factor],
    weight: Float[Array, ""],
    target: Float[Array, " n"],
    guess: Float[Array, " m"],
) -> Iterate:
    r"""One iteration for $q(\theta) - wf(\theta) = $ `target`.

    Regularisation pulls towards `guess`.
    """
    left, solver = equation
    values = evaluate_rate(ansatz, theta, clock, points)
    misfit = target - values.log_ratio + weight * values.forcing
    moment = left.rows.moment(misfit)
    change = solver.solve(moment - solver.shift * (theta - guess))
    change = points.layout.agreed(change)
    moved, forced = left.linearisation.changes(change)
    return Iterate(
        theta=theta + change,
        log_ratio=values.log_ratio + moved,
        forcing=values.forcing + forced,
        size=root_mean_square(moved),
    )


@eqx.filter_jit
def values_at(
    ansatz: StandardisedAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, ""]]:
    """Log-density, forcing, and the root mean square of the latter."""
    values = evaluate_rate(ansatz, theta, clock, points)
    return values.log_ratio, values.forcing, root_mean_square(values.forcing)


@eqx.filter_jit
def projected_size(equation: tuple[System, Factor], values: Float[Array, " n"]) -> Array:
    """Size of the change of the log-density that solves the system for `values`.

    An error that the stiff part of the equation damps at once does not count in full.
    """
    left, solver = equation
    change = left.rows.layout.agreed(solver.solve(left.rows.moment(values)))
    return root_mean_square(left.linearisation.times(change))
