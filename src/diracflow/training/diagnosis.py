"""Why a training does not get on, told by its last steps.

Four causes look different in the records. With too few points the velocity explains the forcing on
its own points and not on fresh ones. With a flow that is too small it does so on neither. A source
far from the density leaves the flow more to undo than steps can follow. And where none of these
shows, steps are short because the equation is stiff.
"""

from collections.abc import Sequence
from statistics import median

from .history import Record
from .status import Status

# Steps that are looked at.
_RECENT = 10
# Of the forcing's mean square, on fresh points: what is left is too much, or all but lost.
_LARGE, _LOST = 0.03, 0.5
# A bound on the total variation that matters.
_NOTICEABLE = 0.05
# By how much fresh residuals exceed those on the velocity's own points when these are too few; and
# when they are far too few, which shows before much is left over. In trainings that were spoiled in
# this way the factor was 7e3 to 4e5, in others 1.1 to 5 (`benchmarks/bench_diagnosis.py`).
_FLATTERED, _FAR_TOO_FEW, _VISIBLE = 4.0, 100.0, 1e-3
# Nats, root mean square, by which source and density differ when the source is no help: 110 where
# Euler's ran away from a double well, 1 in trainings that stalled for other causes.
_FAR = 6.0


def lost(history: Sequence[Record]) -> bool:
    """Whether the parameters have ceased to follow the density."""
    recent = history[-_RECENT:]
    lasting = len(recent) == _RECENT and all(r.fresh_residual > _LOST for r in recent)
    # Close to the start there is little to explain, and as little to lose.
    return lasting and recent[-1].bound > _NOTICEABLE


def diagnosis(history: Sequence[Record]) -> Status:
    """The cause that the last steps point to."""
    recent = history[-_RECENT:]
    if not recent:
        return Status.STIFF
    fresh, seen, gap = (
        median(getattr(record, name) for record in recent)
        for name in ("fresh_residual", "residual", "source_gap")
    )
    flattered = fresh > _LARGE and fresh > _FLATTERED * seen
    if flattered or (fresh > _VISIBLE and fresh > _FAR_TOO_FEW * seen):
        return Status.TOO_FEW_SAMPLES
    if gap > _FAR:
        return Status.SOURCE_TOO_FAR
    return Status.FLOW_TOO_SMALL if fresh > _LARGE else Status.STIFF
