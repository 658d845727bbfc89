"""The picture of a law or of a result, in one panel."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from scipy.stats import binom

from ..density.learned import LearnedDensity
from ..distribution.abstract_distribution import AbstractDistribution
from ..distribution.particles import Particles
from ..evaluate.predictive import PredictiveCheck
from ..hidden.laws_over_time import AbstractLawsOverTime
from ..uses.bridges import Bridge
from ..uses.simulation import Paths
from .axes import (
    DENSITY_MAP,
    EXACT,
    LEARNED,
    PALETTE,
    SOURCE,
    box_around,
    inside,
    plane,
    require_kind,
    style,
)
from .over_time import bridge_quantiles

# Draws that locate a law, and points along each side of a plane.
_DRAWS, _SIDE = 4000, 121
# Fields of the records of a training, with label, line and colour.
_HISTORY = (
    ("residual", "residual, in sample", "--", SOURCE),
    ("fresh_residual", "residual, held out", "-", LEARNED),
    ("bound", "bound on the total variation", ":", EXACT),
)
# Transforms in a bin of their histogram, on average, where they are few.
_PER_BIN = 15
# Probability outside of the range of a curve, and levels of the band of a path.
_OUTSIDE, _BAND = 1e-3, (0.05, 0.5, 0.95)


@style()
def one_panel(thing: Any, ax: Axes | None = None) -> Axes:
    """Draw a law, paths, a bridge, a filter, a smoother or a posterior in one panel.

    One component of a law is drawn as a curve, two as a heat map, more as the spread of each. Paths
    are drawn as the median and the 90 % band of each component. One parameter of a posterior, the
    result of `diracflow.infer`, is drawn as a histogram, two as a heat map, more as the spread of
    each divided by its mean.

    **Arguments:**

    - `thing`: the law or the result.
    - `ax`: the `Axes` to draw in; by default those of a new figure.
    """
    axis = _axes_of(ax)
    if isinstance(thing, AbstractDistribution):
        draw_law(thing, axis)
    elif isinstance(thing, Bridge):
        _draw_bands(axis, thing.times, bridge_quantiles(thing, _BAND))
    elif isinstance(thing, Paths):
        states = np.asarray(thing.states)
        states = states[..., None] if states.ndim == 2 else states
        _draw_bands(axis, thing.times, np.quantile(states, _BAND, axis=0))
    elif isinstance(thing, AbstractLawsOverTime):
        order = np.argsort(thing.levels)
        table = np.moveaxis(np.asarray(thing.quantiles)[:, order], 1, 0)
        _draw_bands(axis, thing.times, table[[0, len(order) // 2, -1]])
    elif isinstance(thing, PredictiveCheck):
        _draw_transforms(thing.transforms, axis)
    elif "posterior" in getattr(thing, "children", ()):
        posterior = thing["posterior"]
        _draw_posterior({n: np.asarray(posterior[n]).ravel() for n in posterior.data_vars}, axis)
    else:
        raise ValueError(
            "Laws, paths, bridges, filters, forecasts, checks and posteriors can be drawn in one "
            f"panel; got {type(thing).__name__}."
        )
    return axis


@style()
def history_panel(density: LearnedDensity, ax: Axes | None = None) -> Axes:
    """Draw the residuals and the error bound of a training over time, with logarithmic scales.

    `training_history` draws more in several panels.

    **Arguments:**

    - `density`: a learned density.
    - `ax`: the `Axes` to draw in; by default those of a new figure.
    """
    require_kind("density", density, LearnedDensity, "diracflow.learn")
    axis = _axes_of(ax)
    # The first step has no previous velocity, hence no held-out residual.
    history = density.provenance.history[1:]
    times = np.array([record.time for record in history])
    for field, label, line, colour in _HISTORY:
        values = np.array([getattr(record, field) for record in history], dtype=float)
        shown = np.where(values > 0, values, np.nan)
        axis.plot(times, shown, line, color=colour, label=label)
    axis.set(xscale="log", yscale="log", xlabel="time $t$", ylabel="error of the training")
    axis.legend()
    return axis


def _draw_transforms(transforms: Float[np.ndarray, "n k"], axis: Axes) -> None:
    count = len(transforms)
    bins = int(np.clip(count // _PER_BIN, 4, 20))
    low, high = binom.interval(0.95, count, 1 / bins)
    axis.axhspan(low * bins / count, high * bins / count, color="0.85", label="uniform, 95 %")
    for component, values in enumerate(transforms.T):
        look: Any = {"histtype": "step", "color": PALETTE[component % len(PALETTE)]}
        name = f"component {component + 1}"
        axis.hist(values, bins, range=(0.0, 1.0), density=True, linewidth=1.5, label=name, **look)
    axis.set(xlabel="probability integral transform", ylabel="density", xlim=(0, 1))
    if transforms.shape[1] > 1:
        axis.legend()


def _draw_posterior(draws: dict[str, Float[np.ndarray, " n"]], axis: Axes) -> None:
    names, values = list(draws), list(draws.values())
    if len(names) == 1:
        axis.hist(values[0], bins=40, color=LEARNED, density=True)
        axis.set(xlabel=names[0], ylabel="density")
    elif len(names) == 2:
        axis.hist2d(values[0], values[1], bins=40, cmap=DENSITY_MAP)
        axis.set(xlabel=names[0], ylabel=names[1])
    else:
        # Parameters have different units; divided by their means they have none.
        scaled = [v / (abs(np.mean(v)) or 1.0) for v in values]
        axis.violinplot(scaled, positions=list(range(len(names))), showmedians=True)
        axis.set(ylabel="parameter divided by its mean")
        axis.set_xticks(range(len(names)), names)


def _axes_of(ax: Axes | None) -> Axes:
    """Return the given `Axes`, or those of a new figure."""
    from matplotlib import pyplot  # whose figures are shown in notebooks

    if ax is not None:
        require_kind("ax", ax, Axes, "plt.subplots()")
        return ax
    return pyplot.subplots(layout="constrained")[1]


def draw_law(law: AbstractDistribution, axis: Axes, key: Any = 0, side: int = _SIDE) -> None:
    """Draw a law, with `side` points along each side of a plane; `key` draws what locates it."""
    if law.batch_shape:
        raise ValueError(
            f"One law can be drawn; this is a batch of shape {law.batch_shape}. Choose one time "
            "and one start."
        )
    draws = np.asarray(law.sample(key, _DRAWS)).reshape(_DRAWS, law.dim)
    if law.dim == 1 and isinstance(law, Particles):
        axis.hist(draws[:, 0], bins=60, density=True, color=LEARNED)
    elif law.dim == 1:
        low, high = np.quantile(draws[:, 0], (_OUTSIDE, 1 - _OUTSIDE))
        x = np.linspace(low, high, 4 * side)
        axis.plot(x, np.exp(np.asarray(law._log_probs(jnp.asarray(x[:, None])))), color=LEARNED)
    if law.dim == 1:
        axis.set(xlabel="state $x$", ylabel="density", ylim=(0, None))
    elif law.dim == 2:
        _draw_plane(law, draws, axis, side)
    else:
        axis.violinplot(list(draws.T), positions=list(range(law.dim)), showmedians=True)
        axis.set(xlabel="component", ylabel="state", xticks=range(law.dim))


def _draw_plane(
    law: AbstractDistribution, draws: Float[np.ndarray, "n 2"], axis: Axes, side: int
) -> None:
    box = inside(law, box_around(draws))
    if isinstance(law, Particles):
        axis.hist2d(draws[:, 0], draws[:, 1], bins=60, range=box, cmap=DENSITY_MAP)
    else:
        grid = plane(box, side)
        values = np.exp(np.asarray(law._log_probs(jnp.asarray(grid))))
        values = np.where(np.isfinite(values), values, 0.0)
        axis.pcolormesh(grid[..., 0], grid[..., 1], values, shading="gouraud", cmap=DENSITY_MAP)
    axis.set(xlabel="$x_1$", ylabel="$x_2$")


def _draw_bands(axis: Axes, times: Any, bands: Float[np.ndarray, "3 n d"]) -> None:
    for component in range(bands.shape[-1]):
        colour = PALETTE[component % len(PALETTE)]
        low, middle, high = bands[..., component]
        axis.fill_between(np.asarray(times), low, high, color=colour, alpha=0.25, linewidth=0)
        axis.plot(np.asarray(times), middle, color=colour, label=f"$x_{component + 1}$")
    axis.set(xlabel="time", ylabel="state, median and 90 %")
    if bands.shape[-1] > 1:
        axis.legend()
