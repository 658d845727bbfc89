"""Learned densities of processes in finance, kept in files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import diracflow as df


class Problem(NamedTuple):
    """An SDE with parameters, and what it is learned for."""

    name: str
    sde: df.SDE
    starts: Any
    horizon: float
    params: Mapping[str, Any]


def learned_density(problem: Problem, path: Path, key: Any, preset: str) -> df.TransitionDensity:
    """The density in a file; if there is none, learned and saved there."""
    if path.exists():
        density = df.load(path, sde=problem.sde)
        _require_same(problem, density, path)
        return density
    path.parent.mkdir(parents=True, exist_ok=True)
    density = df.learn(
        *(problem.sde, problem.starts, problem.horizon),
        key=key,
        params=problem.params,
        preset=preset,
        progress=True,
    )
    density.save(path)
    return density


def _require_same(problem: Problem, density: df.TransitionDensity, path: Path) -> None:
    """A file from before a change of the problem must not answer for it."""
    asked = {name: problem.params[name].expand(1).describe() for name in problem.sde.params}
    held = {name: law.describe() for name, law in density.scope.named.items()}
    starts = problem.starts.expand(problem.sde.dim).describe()
    if held != asked or density.starts.describe() != starts or density.horizon < problem.horizon:
        raise ValueError(
            f"{path} holds a density for other laws or a shorter horizon than {problem.name} asks "
            "for. Remove it, and it is learned anew."
        )
