"""The figures of `diracflow run`: those of the paper where they apply."""

from collections.abc import Callable
from pathlib import Path

import jax.random as jr
import numpy as np
from matplotlib.figure import Figure

from .. import view
from ..density.learned import LearnedDensity
from ..density.summary import landmarks, split
from ..evaluate.errors import Study
from ..models.catalogue import Model
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.green import propagate
from ..view.axes import box_around
from ..view.report import SHARES

Makers = dict[str, Callable[[], Figure]]


def draw_figures(
    density: LearnedDensity, problem: Model, result: Study | None, out: Path
) -> list[str]:
    """Write the figures that apply to the model into the folder `out`, and return their names."""
    makers: Makers = {"training.png": lambda: view.training_history(density)}
    if result is not None:
        makers["error.png"] = lambda: view.error_over_time(result)
    if density.horizon > 0:
        makers |= _over_time(density, problem.exact)
    # The comparisons show one density for each start.
    comparable = not density.params and density.start_time is not None and density.horizon > 0
    if comparable and problem.exact is not None and density.dim > 1:
        makers |= _compared(density, problem.exact, problem.name == "benes")
    for name, make in makers.items():
        make().savefig(out / name)
    return list(makers)


def _over_time(density: LearnedDensity, exact: AbstractTransitionDensity | None) -> Makers:
    """Return figures of the density at three times, from the centre of the training law."""
    x0, conditioning = split(density, landmarks(density.scope.law)["centre"])
    times = [share * density.horizon for share in SHARES]
    if density.dim == 1:
        return {"density.png": lambda: view.lines(density, exact, times, x0, **conditioning)}
    if density.dim == 2:
        return {"density.png": lambda: view.planes(density, times, x0, **conditioning)}
    return {"density.png": lambda: view.spread(density, x0, **conditioning)}


def _compared(density: LearnedDensity, exact: AbstractTransitionDensity, paper: bool) -> Makers:
    """Return figures that compare the density with the exact one at the horizon."""
    end, centre = density.horizon, np.zeros(density.dim)
    if density.dim > 2:
        return {"section.png": lambda: view.section(density, exact, end, centre)}
    starts = np.stack(list(landmarks(density.starts).values()))
    if not paper:
        return {"joint.png": lambda: view.joint(density, exact, end, starts)}
    noise = np.asarray(jr.normal(jr.key(0), (3000, 2)))
    return {
        "joint.png": lambda: view.joint(density, exact, end, np.array([[0.0, 0.0], [1.5, -1.0]])),
        "moulding.png": lambda: view.moulding(density, density.reach, centre, noise),
        "conditional.png": lambda: view.conditional(density, exact, centre, end),
        "mixture.png": lambda: mixture_figure(density, exact, end),
    }


def mixture_figure(
    density: LearnedDensity, exact: AbstractTransitionDensity, t: float, count: int = 1750
) -> Figure:
    """Return the paper's figure of a Gaussian mixture as initial law, propagated by its draws."""
    draws = mixture_draws(count)
    learned, true = propagate(density, draws, t), propagate(exact, draws, t)
    cloud = np.asarray(true.sample(jr.key(2), (2000,)))
    row = (f"mixture start, $t={t:g}$", box_around(cloud), true.prob, learned.prob)
    return view.comparison([row], grid=81)  # each pixel averages over all draws


def mixture_draws(count: int) -> np.ndarray:
    r"""Return draws of $\tfrac14 N((1,1), 0.1^2) + \tfrac34 N((-\tfrac34,-\tfrac34), 0.5^2)$."""
    rng = np.random.default_rng(0)
    near = rng.random(count) < 0.25
    noise = rng.normal(size=(count, 2))
    return np.where(near[:, None], 1.0 + 0.1 * noise, -0.75 + 0.5 * noise)
