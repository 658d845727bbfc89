"""Figures over time: errors, error bounds, a training, bridges and filtered states."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..density.learned import LearnedDensity
from ..evaluate.errors import Study
from ..hidden.filtering import Filtered
from ..hidden.forecasts import Forecast
from ..hidden.laws_over_time import AbstractLawsOverTime
from ..hidden.smoothing import Smoothed
from ..uses.bridges import Bridge
from ..uses.weights import weighted_quantiles
from .axes import EXACT, LEARNED, LEVELS, SOURCE, fan, panels, require_kind, style

Rows = Sequence[Mapping[str, Any]]


@style()
def error_over_time(study: Study | Rows) -> Figure:
    """Draw the mean relative squared error over the starts, with its 95 % bootstrap interval.

    **Arguments:**

    - `study`: a `Study`, or the rows of its summary, such as the `facts.errors` of a density.
    """
    if not isinstance(study, Sequence):
        require_kind("study", study, Study, "diracflow.evaluate.study")
    rows = study.summary() if isinstance(study, Study) else study
    number = f" over {len(study.starts)} starts" if isinstance(study, Study) else ""
    times = _column(rows, "t")
    figure, axis = _over_time("relative squared $L^2$ error", f"mean{number}, 95 % interval")
    interval = _column(rows, "squared_l2_low"), _column(rows, "squared_l2_high")
    axis.fill_between(times, *interval, color=LEARNED, alpha=0.25, linewidth=0)
    for field, colour, mark, name in (
        ("squared_l2", LEARNED, "o", "learned"),
        ("source_squared_l2", SOURCE, "s", "source alone"),
    ):
        axis.plot(times, _column(rows, field), mark + "-", color=colour, ms=3, label=name)
    axis.legend()
    return figure


@style()
def certificate_over_time(density: LearnedDensity) -> Figure:
    """Draw the stored bound on the total variation from centre and edge of the start law.

    A band of three standard errors lies above each bound. The dashed line is the true distance,
    averaged over starts, if it is known.

    **Arguments:**

    - `density`: a learned density with a stored certificate.
    """
    rows, known = density.provenance.certificate, density.provenance.errors
    figure, axis = _over_time("total variation", "upper bound on the distance to the true density")
    for name, colour, mark in (("centre", LEARNED, "o-"), ("edge", SOURCE, "s-")):
        own = [row for row in rows if row["start"] == name]
        times, bound, spread = (_column(own, field) for field in ("t", "bound", "stderr"))
        axis.plot(times, _positive(bound), mark, color=colour, ms=3, label=f"bound, {name}")
        upper = bound + 3 * spread
        axis.fill_between(times, bound, upper, color=colour, alpha=0.25, linewidth=0)
    if known:
        truth = _positive(_column(known, "total_variation"))
        label = "true distance, mean"
        axis.plot(_column(known, "t"), truth, "--", color=EXACT, linewidth=1, label=label)
    axis.legend()
    return figure


def _over_time(ylabel: str, title: str) -> tuple[Figure, Axes]:
    """Return a figure of one panel with logarithmic scales over time."""
    figure, [[axis]] = panels(4.6, 3.2)
    axis.set(xscale="log", yscale="log", xlabel="time $t$", ylabel=ylabel, title=title)
    return figure, axis


# Titles of the panels; for each panel the fields of a record with their labels.
_PANELS: dict[str, dict[str, str | None]] = {
    "residual relative to the forcing": {"residual": "in sample", "fresh_residual": "held out"},
    "bound on the total variation, mean": {"bound": None},
    "work of the flow (nats)": {"source_gap": "gap to the source", "forcing": "forcing"},
    r"step length in $\sqrt{t}$": {"length": None},
    "effective rank": {"rank": None},
    "condition number, lower bound": {"condition": None},
}


@style()
def training_history(density: LearnedDensity) -> Figure:
    """Draw residuals, error bound, source gap, step length and rank over a training.

    **Arguments:**

    - `density`: a learned density.
    """
    require_kind("density", density, LearnedDensity, "diracflow.learn")
    # The first step has no previous velocity, hence no held-out residual.
    history = density.provenance.history[1:]
    times = np.array([record.time for record in history])
    figure, axes = panels(9.0, 5.2, 2, 3)
    for axis, (title, fields) in zip(axes.flat, _PANELS.items(), strict=True):
        for field, label in fields.items():
            values = np.array([getattr(record, field) for record in history])
            first = field in ("residual", "source_gap")
            colour, line = (SOURCE, "--") if first else (LEARNED, "-")
            axis.plot(times, _positive(values), line, color=colour, label=label)
        axis.set(title=title, xlabel="time $t$")
        shown = [np.asarray(line.get_ydata()) for line in axis.lines]
        if any(np.isfinite(values).any() for values in shown):
            axis.set(xscale="log", yscale="log")
            low, high = axis.get_ylim()
            if high < 10 * low:  # only powers of ten have tick labels
                low, high = 10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high))
            if len(fields) > 1:  # space for the legend above the curves, which fill the panel
                high *= (high / low) ** 0.25
            axis.set_ylim(low, high)
        else:
            note = "zero throughout" if history else "no steps"
            axis.text(0.5, 0.5, note, ha="center", va="center", transform=axis.transAxes)
            axis.set(xticks=[], yticks=[])
        if len(fields) > 1 and history:
            axis.legend(loc="upper center", ncols=2, columnspacing=0.8, handlelength=1.4)
    return figure


def _column(rows: Rows, field: str) -> np.ndarray:
    return np.array([row[field] for row in rows], dtype=float)


def _positive(values: np.ndarray) -> np.ndarray:
    """Replace values that a logarithmic axis cannot show by NaN."""
    return np.where(values > 0, values, np.nan)


# Number of paths drawn.
_SHOWN = 60


def bridge_quantiles(
    bridge: Bridge, levels: Sequence[float]
) -> Float[np.ndarray, "levels steps+1 d"]:
    """Return quantiles of the weighted paths of a bridge, at each time and of each component."""
    each = jax.vmap(weighted_quantiles, (1, None, None), 1)
    found = jax.vmap(each, (2, None, None), 2)(bridge.paths, bridge.weights, jnp.array(levels))
    return np.asarray(found)


@style()
def bridge_fan(bridge: Bridge) -> Figure:
    """Draw quantile bands and some paths of a bridge, one panel for each component.

    **Arguments:**

    - `bridge`: the result of `diracflow.bridge`.
    """
    require_kind("bridge", bridge, Bridge, "diracflow.bridge")
    times, paths = np.asarray(bridge.times), np.asarray(bridge.paths)
    weights, dim = np.asarray(bridge.weights), paths.shape[-1]
    bands = bridge_quantiles(bridge, LEVELS)
    # Paths are drawn in proportion to their weights.
    comb = (np.arange(_SHOWN) + 0.5) / _SHOWN
    shown = paths[np.minimum(np.searchsorted(np.cumsum(weights), comb), len(paths) - 1)]
    figure, [axes] = panels(3.6 * dim + 0.6, 3.0, 1, dim)
    for component, axis in enumerate(axes):
        axis.plot(times, shown[:, :, component].T, color="0.6", linewidth=0.3, alpha=0.5)
        fan(axis, times, LEVELS, bands[:, :, component])
        ends = paths[0, [0, -1], component]
        axis.plot(times[[0, -1]], ends, "o", color=EXACT, markersize=5, zorder=3)
        axis.set(xlabel="time $s$", ylabel=f"$x_{component + 1}$")
    axes[0].set_title(
        f"{len(paths)} paths, effective sample size {bridge.effective_share:.0%}", loc="left"
    )
    axes[-1].legend()
    return figure


@style()
def filter_bands(
    filtered: Filtered | Smoothed,
    observations: Float[ArrayLike, "n k"] | None = None,
    truth: Float[ArrayLike, "n d"] | None = None,
) -> Figure:
    """Draw quantiles of the hidden state over time, one panel for each component.

    **Arguments:**

    - `filtered`: the result of `diracflow.filter` or `diracflow.smooth`.
    - `observations`: observed values of the components, with NaN for those not observed.
    - `truth`: the hidden state at the same times, if known.
    """
    require_kind("filtered", filtered, Filtered | Smoothed, "diracflow.filter")
    times = np.asarray(filtered.times)
    figure, axes = _component_fans(filtered)
    for axis, means in zip(axes, np.asarray(filtered.means).T, strict=True):
        axis.plot(times, means, color=LEARNED, label="mean")
    for label, values, mark, colour in (
        ("hidden state", truth, ".", EXACT),
        ("observation", observations, "x", SOURCE),
    ):
        shown = np.empty((len(times), 0)) if values is None else np.asarray(values, dtype=float)
        if shown.ndim not in (1, 2) or len(shown) != len(times):
            raise ValueError(
                f"The {label} must have one row for each of the {len(times)} times; got shape "
                f"{shown.shape}."
            )
        for axis, column in zip(axes, shown.reshape(len(times), -1).T, strict=False):
            axis.plot(times, column, mark, color=colour, markersize=5, label=label)
    axes[0].set_title(f"log-evidence {filtered.log_evidence:.2f}", loc="left")
    return _with_legend(figure)


@style()
def forecast_fan(
    forecast: Forecast,
    filtered: Filtered | None = None,
    observations: Float[ArrayLike, "n k"] | None = None,
    last: int = 100,
) -> Figure:
    """Draw the quantiles of a forecast after the filter's band, one panel for each component.

    **Arguments:**

    - `forecast`: the result of `diracflow.forecast`.
    - `filtered`: the result of `diracflow.filter` that it started from.
    - `observations`: observed values of the components, with NaN for those not observed.
    - `last`: number of past times that are shown.
    """
    require_kind("forecast", forecast, Forecast, "diracflow.forecast")
    figure, axes = _component_fans(forecast)
    if filtered is not None:
        _draw_past(axes, filtered, observations, slice(-last, None))
    return _with_legend(figure)


def _draw_past(axes: Sequence[Axes], filtered: Filtered, observations: Any, past: slice) -> None:
    """Draw band and mean of a filter, and observations, in one panel for each component."""
    seen = np.asarray([[]] if observations is None else observations, float)
    before = np.asarray(filtered.times)[past]
    for component, axis in enumerate(axes):
        band = np.asarray(filtered.quantiles)[past, :, component]
        ends = band.min(axis=1), band.max(axis=1)
        axis.fill_between(before, *ends, color="0.75", linewidth=0, label="filter")
        axis.plot(before, filtered.means[past, component], color=EXACT, linewidth=0.8)
        if component < seen.shape[-1]:
            column = seen.reshape(len(seen), -1)[past, component]
            axis.plot(before, column, ".", color=SOURCE, markersize=3, label="observation")


def _component_fans(laws: AbstractLawsOverTime) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure of the quantiles over time, with one panel for each component."""
    table, levels = np.asarray(laws.quantiles), np.asarray(laws.levels).tolist()
    dim = table.shape[-1]
    figure, axes = panels(7.2, 0.6 + 2.0 * dim, dim, sharex=True)
    for component, axis in enumerate(axes[:, 0]):
        fan(axis, np.asarray(laws.times), levels, table[:, :, component].T)
        axis.set_ylabel(f"$x_{component + 1}$")
    axes[-1, 0].set_xlabel("time $t$")
    return figure, axes[:, 0]


def _with_legend(figure: Figure) -> Figure:
    """Add the legend above the panels, because observations may lie anywhere within."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=6)
    return figure
