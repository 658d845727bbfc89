r"""Implicit stage equations, solved by least squares over the points.

An implicit stage solves $q(\theta) - wf(\theta) = v$ at all points for the parameters $\theta$,
where $v$ is known. The solver is a Gauss--Newton iteration with one linearisation for all stages of
a step, so an iteration costs one evaluation of $q$ and $f$ and a back substitution. The equation is
between functions, not between velocities of parameters, so the iteration itself accounts for the
change of the Jacobian along the step.
"""

import equinox as eqx
from jaxtyping import Array, Float

from ..flow.ansatz import StandardisedAnsatz
from .collocation import Points, sharing_frames
from .rows import AbstractLinearisation, AbstractRows, evaluate
from .velocity import Factor, NormalEquations, normal_equations, root_mean_square


class System(eqx.Module):
    r"""The linearised stage equation $J - wF$ and its normal equations."""

    linearisation: AbstractLinearisation
    rows: AbstractRows
    normal: NormalEquations


class Iterate(eqx.Module):
    """Parameters after an iteration, and values there."""

    theta: Float[Array, " m"]
    log_ratio: Float[Array, " n"]
    forcing: Float[Array, " n"]
    size: Float[Array, ""]  # root mean square change of the log-density, in nats


@eqx.filter_jit
def system(linearisation: AbstractLinearisation, weight: Float[Array, ""]) -> System:
    """Return the system for the weight $w$ of the rate."""
    rows = linearisation.implicit(weight)
    return System(linearisation, rows, normal_equations(rows))


@eqx.filter_jit
def factor(normal: NormalEquations, regularisation: Float[Array, ""]) -> Factor:
    """Return the Cholesky factor for one regularisation."""
    return normal.factor(regularisation)


@sharing_frames
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
    r"""Return the result of one iteration for $q(\theta) - wf(\theta) = v$.

    $w$ is `weight` and $v$ is `target`. The regularisation pulls towards `guess`.
    """
    left, solver = equation
    log_ratio, rate = evaluate(ansatz.at(theta).log_ratio_and_rate, clock, points)
    misfit = target - log_ratio + weight * rate
    moment = left.rows.moment(misfit)
    change = solver.solve(moment - solver.shift * (theta - guess))
    change = points.layout.agreed(change)
    moved, forced = left.linearisation.changes(change)
    return Iterate(
        theta=theta + change,
        log_ratio=log_ratio + moved,
        forcing=rate + forced,
        size=root_mean_square(moved),
    )


@sharing_frames
@eqx.filter_jit
def values_at(
    ansatz: StandardisedAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, ""]]:
    """Return log-ratio, total rate, and the root mean square of the latter."""
    log_ratio, rate = evaluate(ansatz.at(theta).log_ratio_and_rate, clock, points)
    return log_ratio, rate, root_mean_square(rate)


@eqx.filter_jit
def projected_size(equation: tuple[System, Factor], values: Float[Array, " n"]) -> Array:
    """Return the size of the change of the log-density that solves the system for `values`.

    This norm discounts errors that the stiff part of the equation damps quickly.
    """
    left, solver = equation
    change = left.rows.layout.agreed(solver.solve(left.rows.moment(values)))
    return root_mean_square(left.linearisation.times(change))
