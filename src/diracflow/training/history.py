"""What is recorded of every accepted step."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Record:
    """One accepted step."""

    time: float  # at its end
    length: float  # in the clock, the square root of time
    error: float  # estimated, in nats
    residual: float  # of the velocity at its start, on the points it was fitted to
    fresh_residual: float  # of the velocity that ended the step before, on this one's points
    regularisation: float  # relative, in force from here on
    rank: float  # directions of the parameters in use
    condition: float  # of the regularised normal equations, estimated from below
    forcing: float  # root mean square, in nats per unit of clock
    source_gap: float  # of the log-density from the source's, in nats, root mean square
    bound: float  # on the total variation so far, mean over starts, from the fresh residuals
    rejected: int  # attempts before it, since the last accepted step
    seconds: float  # wall time since training began
