"""The figures that `diracflow run` leaves beside a model: the paper's, where they apply."""

from collections.abc import Callable
from pathlib import Path

import jax.random as jr
import numpy as np
from matplotlib.figure import Figure

from .. import view
from ..density.learned import LearnedDensity
from ..density.summary import landmarks, split
from ..evaluate.study import Study
from ..models.catalogue import Model
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.green import propagate
from ..view.axes import box_around
from ..view.report import SHARES

Makers = dict[str, Callable[[], Figure]]


def draw_figures(
    density: LearnedDensity, problem: Model, result: Study | None, out: Path
) -> list[str]:
    """Write the figures that fit the model into `out`; returns their names."""
    makers: Makers = {"training.png": lambda: view.training_history(density)}
    if result is not None:
        makers["error.png"] = lambda: view.error_over_time(result)
    if density.horizon > 0:
        makers |= _over_time(density, problem.exact)
    # These show one density for each start.
    alone = not density.params and density.start_time is not None and density.horizon > 0
    if alone and problem.exact is not None and density.dim > 1:
        makers |= _compared(density, problem.exact, problem.name == "benes")
    for name, make in makers.items():
        make().savefig(out / name)
    return list(makers)


def _over_time(density: LearnedDensity, exact: AbstractTransitionDensity | None) -> Makers:
    """From the centre of all that is given, at three times."""
    x0, given = split(density, landmarks(density.scope.law)["centre"])
    times = [share * density.horizon for share in SHARES]
    if density.dim == 1:
        return {"density.png": lambda: view.lines(density, exact, times, x0, **given)}
    if density.dim == 2:
        return {"density.png": lambda: view.planes(density, times, x0, **given)}
    return {"density.png": lambda: view.spread(density, x0, **given)}


def _compared(density: LearnedDensity, exact: AbstractTransitionDensity, paper: bool) -> Makers:
    """Beside the exact density at the horizon."""
    end, centre = density.horizon, np.zeros(density.dim)
    if density.dim > 2:
        return {"section.png": lambda: view.section(density, exact, end, centre)}
    starts = np.stack(list(landmarks(density.starts).values()))
    if not paper:
        return {"joint.png": lambda: view.joint(density, exact, end, starts)}
    noise = np.asarray(jr.normal(jr.key(0), (3000, 2)))
    return {
        "joint.png": lambda: view.joint(density, exact, end, np.array([[0.0, 0.0], [1.5, -1.0]])),
        "moulding.png": lambda: view.moulding(
            density, getattr(density, "reach", density.horizon), centre, noise
        ),
        "conditional.png": lambda: view.conditional(density, exact, centre, end),
        "mixture.png": lambda: mixture_figure(density, exact, end),
    }


def mixture_figure(
    density: LearnedDensity, exact: AbstractTransitionDensity, t: float, count: int = 1750
) -> Figure:
    """The paper's start from a mixture of two Gaussians, by Green's identity with `count` draws."""
    draws = mixture_draws(count)
    learned, true = propagate(density, draws, t), propagate(exact, draws, t)
    cloud = np.asarray(true.sample(jr.key(2), (2000,)))
    row = (f"mixture start, $t={t:g}$", box_around(cloud), true.prob, learned.prob)
    return view.comparison([row], grid=81)  # every pixel is a mean over all draws


def mixture_draws(count: int) -> np.ndarray:
    r"""Draws of $\tfrac14 N((1,1), 0.1^2) + \tfrac34 N((-\tfrac34,-\tfrac34), 0.5^2)$."""
    rng = np.random.default_rng(0)
    near = rng.random(count) < 0.25
    noise = rng.normal(size=(count, 2))
    return np.where(near[:, None], 1.0 + 0.1 * noise, -0.75 + 0.5 * noise)
