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
    STEP_COLLAPSED = (
        "The step became too small to make progress: the parameters cannot follow the density "
        "within the tolerance. Raise `tolerance` or `regularisation`, add `layers`, or shorten "
        "the horizon."
    )
    STEP_LIMIT = (
        "The number of steps reached `max_steps`. Raise it, raise `tolerance`, or shorten the "
        "horizon."
    )
    TIME_LIMIT = "The wall-clock limit `max_seconds` was reached. Raise it or raise `tolerance`."

    @property
    def failed(self) -> bool:
        """Whether numerics ended the training, rather than the horizon or a limit the user set."""
        return self in (Status.NOT_FINITE, Status.STEP_COLLAPSED)
