"""How a training can end."""

import enum


class Status(enum.Enum):
    """The end of a training; the text says what to try next."""

    FINISHED = "The horizon was reached."
    NOT_FINITE = (
        "The velocity of the parameters is not finite, even for the smallest step. Check that "
        "drift and diffusion are finite and smooth where paths go, or train with more `samples` "
        "or a larger `regularisation`."
    )
    EXPLODING = (
        "Paths grow beyond all bounds before the horizon, from some of the starts at least, and "
        "there is no density to follow. Shorten the `horizon`, narrow the start law, or give the "
        "drift a bound."
    )
    SOURCE_TOO_FAR = (
        "The source lies so far from the density that the flow cannot undo the difference within "
        'the tolerance. Use `source="closure"` if it was another, narrow the start law, or '
        "shorten the horizon."
    )
    FLOW_TOO_SMALL = (
        "The parameters cannot follow the density: much of its change is left over, on the points "
        "of the training as on fresh ones. Raise `layers` or `hidden`, or shorten the horizon."
    )
    TOO_FEW_SAMPLES = (
        "The velocity of the parameters fits its own points and not fresh ones. Raise `samples`, "
        "or lower `layers` or `hidden`."
    )
    STIFF = (
        "The step became too small to make progress, though the parameters can follow the "
        "density. Raise `tolerance` or `regularisation`, or shorten the horizon."
    )
    STEP_LIMIT = (
        "The number of steps reached `max_steps`. Raise it, raise `tolerance`, or shorten the "
        "horizon."
    )
    TIME_LIMIT = "The wall-clock limit `max_seconds` was reached. Raise it or raise `tolerance`."

    @property
    def failed(self) -> bool:
        """Whether numerics ended the training, rather than the horizon or a limit the user set."""
        return self not in (Status.FINISHED, Status.STEP_LIMIT, Status.TIME_LIMIT)
