"""The ways in which a training can end."""

import enum


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
    STEP_LIMIT = (
        "The number of steps reached `max_steps`. Raise it, raise `tolerance`, or shorten the "
        "horizon."
    )
    TIME_LIMIT = "The wall-clock limit `max_seconds` was reached. Raise it or raise `tolerance`."

    @property
    def failed(self) -> bool:
        """`True` if numerics ended the training, and not the horizon or a limit of the user."""
        return self not in (Status.FINISHED, Status.STEP_LIMIT, Status.TIME_LIMIT)
