"""Errors and warnings of checkpoints."""


class CheckpointError(ValueError):
    """A directory in which a training cannot write checkpoints, or from which it cannot resume."""


class CheckpointWarning(UserWarning):
    """A training continues, but its checkpoints do not guarantee what they usually do."""
