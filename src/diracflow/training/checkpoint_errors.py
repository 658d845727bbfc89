"""What can be wrong with a checkpoint."""


class CheckpointError(ValueError):
    """A directory that a training cannot be kept in, or resumed from."""


class CheckpointWarning(UserWarning):
    """A training goes on, but not quite as its checkpoint promises."""
