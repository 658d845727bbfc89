"""Diagnose stalled training from its most recent steps.

The records distinguish four causes. With too few points the residual is small on the points of the
velocity and large on held-out points. With a flow that is too small it is large on both. With a
source far from the density, the flow has to represent more than the steps can follow. In all other
cases steps are short because the equation is stiff.
"""

from collections.abc import Sequence
from statistics import median

from .state import Record, Status

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
