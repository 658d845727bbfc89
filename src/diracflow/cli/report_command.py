"""`diracflow report`: an HTML page about a model file."""

from pathlib import Path

import jax.random as jr

from ..density.learned import LearnedDensity
from ..density.summary import certificate_table
from ..evaluate.errors import study
from ..transition.transition_density import AbstractTransitionDensity
from .inputs import load_with_exact
from .results import require_writable


def write_report(path: Path, sde: str | None, out: Path, starts: int, seed: int) -> None:
    """Write the page; error bounds and errors are computed if the file has none."""
    if starts < 1:
        raise ValueError(f"`--starts` must be at least 1; got {starts}.")
    require_writable(out)
    density, exact = load_with_exact(path, sde)
    from .. import view

    view.report(_evaluated(density, exact, starts, seed), exact, file=str(path), path=out)


def _evaluated(
    density: LearnedDensity, exact: AbstractTransitionDensity | None, starts: int, seed: int
) -> LearnedDensity:
    """Return the density with its error bounds, and its errors if the exact density is known."""
    if density.horizon <= 0:
        return density
    if not density.provenance.certificate:
        density = density.with_provenance(certificate=certificate_table(density, jr.key(seed)))
    if exact is not None and not density.provenance.errors:
        found = study(density, exact, key=jr.key(seed + 1), starts=starts)
        density = density.with_provenance(errors=tuple(found.summary()))
    return density
