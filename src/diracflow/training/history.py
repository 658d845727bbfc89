"""The record of an accepted step."""

import dataclasses


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
