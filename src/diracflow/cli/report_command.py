"""`diracflow report`: a page about a model file."""

from pathlib import Path

import jax.random as jr

from ..density.learned import LearnedDensity
from ..density.summary import certificate_table
from ..evaluate.study import study
from ..transition.transition_density import AbstractTransitionDensity
from .inputs import load_with_exact


def write_report(path: Path, sde: str | None, out: Path, starts: int, seed: int) -> None:
    """Write the page; certificate and errors are computed where the file has none."""
    if starts < 1:
        raise ValueError(f"`--starts` must be at least 1; got {starts}.")
    if not out.parent.is_dir():
        raise ValueError(f"There is no folder {out.parent} to write {out.name} into.")
    density, exact = load_with_exact(path, sde)
    from .. import view

    view.report(_judged(density, exact, starts, seed), exact, file=str(path), path=out)


def _judged(
    density: LearnedDensity, exact: AbstractTransitionDensity | None, starts: int, seed: int
) -> LearnedDensity:
    if density.horizon <= 0:
        return density
    if not density.facts.certificate:
        density = density.with_facts(certificate=certificate_table(density, jr.key(seed)))
    if exact is not None and not density.facts.errors:
        found = study(density, exact, key=jr.key(seed + 1), starts=starts)
        density = density.with_facts(errors=tuple(found.summary()))
    return density
