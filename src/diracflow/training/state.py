r"""The state of a training: its records, the path of its parameters, and the ways it can end.

The records of the most recent steps distinguish four causes of a stalled training. With too few
points the residual is small on the points of the velocity and large on held-out points. With a flow
that is too small it is large on both. With a source far from the density, the flow has to represent
more than the steps can follow. In all other cases steps are short because the equation is stiff.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@dataclasses.dataclass(frozen=True)
class Record:
    """Diagnostics of one accepted step."""

    time: float  # at the end of the step
    length: float  # in units of the clock, the square root of time
    error: float  # estimated time-integration error, in nats
    residual: float  # of the velocity at the start of the step, on the points it was fitted to
    fresh_residual: float  # held-out: velocity of the previous step on the points of this one
    regularisation: float  # relative, from this step on
    rank: float  # effective number of parameter directions
    condition: float  # lower estimate for the regularised normal equations
    forcing: float  # root mean square, in nats per unit of clock
    source_gap: float  # root mean square of log-density minus log-density of the source, in nats
    bound: float  # on the total variation so far, mean over starts, from the held-out residuals
    rejected: int  # attempts that were rejected before this step
    seconds: float  # wall time since training began


class Diagnostics(NamedTuple):
    """Diagnostics of the equation for a velocity, as in a `Record`."""

    residual: float
    fresh_residual: float
    rank: float
    condition: float


class Status(enum.Enum):
    """The end of a training; the text gives the cause and a remedy."""

    FINISHED = "The horizon was reached."
    NOT_FINITE = (
        "The velocity of the parameters is not finite, even for the smallest step. Check that "
        "drift and diffusion are finite and smooth in the region that paths visit, or raise "
        "`samples` or `regularisation`."
    )
    EXPLODING = (
        "Paths from some of the starts diverge before the horizon, so there is no density to "
        "learn. Shorten the `horizon`, narrow the start law, or bound the drift."
    )
    SOURCE_TOO_FAR = (
        "The source differs so much from the density that the flow cannot represent the "
        'difference within the tolerance. Use `source="closure"` unless it was used already, '
        "narrow the start law, or shorten the horizon."
    )
    FLOW_TOO_SMALL = (
        "The flow cannot represent the density: the residual is large on the training points and "
        "on held-out points. Raise `layers` or `hidden`, or shorten the horizon."
    )
    TOO_FEW_SAMPLES = (
        "The velocity of the parameters overfits: the residual is small on the training points "
        "and large on held-out points. Raise `samples`, or lower `layers` or `hidden`."
    )
    STIFF = (
        "The step became too small to make progress, although the flow can represent the "
        "density. Raise `tolerance` or `regularisation`, or shorten the horizon."
    )
    TOO_SLOW = (
        "Steps are so short that training would take very long. Raise `tolerance`, shorten the "
        'horizon, narrow the start law, or use `method="galerkin"` to train however long it takes.'
    )
    DIVIDED = (
        "Steps became short. The rest of the horizon is composed of what was learned, in `legs` "
        "subintervals."
    )
    STEP_LIMIT = (
        "The number of steps reached `max_steps`. Raise it, raise `tolerance`, or shorten the "
        "horizon."
    )
    TIME_LIMIT = "The wall-clock limit `max_seconds` was reached. Raise it or raise `tolerance`."

    @property
    def failed(self) -> bool:
        """`True` if numerics ended the training, and not the horizon or a limit of the user."""
        limits = (Status.DIVIDED, Status.STEP_LIMIT, Status.TIME_LIMIT)
        return self is not Status.FINISHED and self not in limits


class Trajectory(eqx.Module):
    r"""Knots in the clock $\sqrt\tau$, parameters there, and velocities at both ends of each step.

    Both velocities of an explicit step come from the points of that step. The next step uses other
    points, so the velocities on either side of a knot differ by sampling noise; mixing them would
    put that noise between the knots. Implicit steps are so long that this noise would dominate, and
    their stages scatter. Their slopes come from the knots alone.

    Before the first knot the flow is the identity, so the density is that of the source.
    """

    clocks: Float[np.ndarray, " k+1"]
    thetas: Float[np.ndarray, "k+1 m"]
    first: Float[np.ndarray, "k m"]  # velocity at the start of each step
    last: Float[np.ndarray, "k m"]  # velocity at the end of each step

    def __check_init__(self) -> None:
        steps, width = len(self.clocks) - 1, self.thetas.shape[-1]
        expected = [(steps + 1, width), (steps, width), (steps, width)]
        found = [table.shape for table in (self.thetas, self.first, self.last)]
        if found != expected:
            raise ValueError(
                f"{steps} steps need parameters and velocities of shapes {expected}; got {found}."
            )

    def __call__(self, tau: Float[Array, ""]) -> Float[Array, " m"]:
        """Return the parameters at time `tau` since the start."""
        clocks, thetas = jnp.asarray(self.clocks, tau.dtype), jnp.asarray(self.thetas, tau.dtype)
        if len(self.first) == 0:
            return thetas[0]
        # `clip` would halve the derivative at the last knot. Beyond it, by rounding of the horizon,
        # the last cubic is extrapolated.
        clock = jnp.where(tau > clocks[0] ** 2, jnp.sqrt(tau), clocks[0])
        left = jnp.clip(jnp.searchsorted(clocks, clock, side="right") - 1, 0, len(self.first) - 1)
        gap = clocks[left + 1] - clocks[left]
        u = (clock - clocks[left]) / gap
        slopes = [jnp.asarray(table, tau.dtype)[left] for table in (self.first, self.last)]
        rise = u * u * (3 - 2 * u)
        bend = gap * u * (1 - u) * ((1 - u) * slopes[0] - u * slopes[1])
        return thetas[left] + rise * (thetas[left + 1] - thetas[left]) + bend


Rows = tuple[Float[np.ndarray, " m"], ...]


@dataclasses.dataclass(frozen=True)
class State:
    """The path of a loop, its history, and the values that the next step needs."""

    clocks: tuple[float, ...]
    thetas: Rows
    first: Rows
    last: Rows
    history: tuple[Record, ...]
    seconds: float  # of wall time, so far
    carried: Mapping[str, Any]  # numbers and arrays, by the names that loops give them

    def __post_init__(self) -> None:
        steps, tables = len(self.history), (self.thetas, self.first, self.last)
        lengths = [len(self.clocks), *map(len, tables)]
        widths = {row.shape for rows in tables for row in rows}
        if lengths != [steps + 1, steps + 1, steps, steps] or len(widths) != 1:
            raise ValueError(
                f"the tables of a training do not fit together: {steps} steps, tables of the "
                f"lengths {lengths}, rows of the shapes {sorted(widths)}"
            )


# Number of recent steps that are examined.
_RECENT = 10
# Held-out residuals, relative to the mean square of the forcing: large, and diverged.
_LARGE, _DIVERGED = 0.03, 0.5
# A bound on the total variation that matters.
_NOTICEABLE = 0.05
# Under-sampling is detected from the ratio of held-out to in-sample residual. The second ratio
# indicates severe under-sampling, even if the held-out residual is only `_VISIBLE`. In trainings
# with too few points it was 7e3 to 4e5, in others 1.1 to 5 (`benchmarks/bench_diagnosis.py`).
_OVERFITTED, _SEVERELY_OVERFITTED, _VISIBLE = 4.0, 100.0, 1e-3
# Root mean square difference in nats between the log-densities of source and ansatz, above which
# the source does not help. It was 110 where Euler's source left a double well, and 1 in trainings
# that stalled for other causes.
_FAR = 6.0


def diverged(history: Sequence[Record]) -> bool:
    """Return `True` if the parameters no longer follow the density."""
    recent = history[-_RECENT:]
    lasting = len(recent) == _RECENT and all(r.fresh_residual > _DIVERGED for r in recent)
    # Near the start the forcing is small, so that a large relative residual does no harm.
    return lasting and recent[-1].bound > _NOTICEABLE


def diagnosis(history: Sequence[Record]) -> Status:
    """Return the most likely cause of a stalled training."""
    recent = history[-_RECENT:]
    if not recent:
        return Status.STIFF
    held_out, in_sample, gap = (
        median(getattr(record, name) for record in recent)
        for name in ("fresh_residual", "residual", "source_gap")
    )
    overfitted = held_out > _LARGE and held_out > _OVERFITTED * in_sample
    if overfitted or (held_out > _VISIBLE and held_out > _SEVERELY_OVERFITTED * in_sample):
        return Status.TOO_FEW_SAMPLES
    if gap > _FAR:
        return Status.SOURCE_TOO_FAR
    return Status.FLOW_TOO_SMALL if held_out > _LARGE else Status.STIFF
