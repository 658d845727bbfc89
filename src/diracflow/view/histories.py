"""Figures of errors and error bounds over time, and of a training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..density.learned import LearnedDensity
from ..evaluate.study import Study
from .figure_checks import require_kind
from .style import EXACT, LEARNED, SOURCE, new_figure, style

Rows = Sequence[Mapping[str, Any]]


@style()
def error_over_time(study: Study | Rows) -> Figure:
    """Draw the mean relative squared error over the starts, with its 95 % bootstrap interval.

    **Arguments:**

    - `study`: a `Study`, or the rows of its summary, such as the `provenance.errors` of a density.
    """
    if not isinstance(study, Sequence):
        require_kind("study", study, Study, "diracflow.evaluate.study")
    rows = study.summary() if isinstance(study, Study) else study
    number = f" over {len(study.starts)} starts" if isinstance(study, Study) else ""
    times = _column(rows, "t")
    title = f"mean{number}, 95 % interval"
    figure, axis = _over_time("relative squared $L^2$ error", title)
    interval = _column(rows, "squared_l2_low"), _column(rows, "squared_l2_high")
    axis.fill_between(times, *interval, color=LEARNED, alpha=0.25, linewidth=0)
    for field, colour, mark, name in (
        ("squared_l2", LEARNED, "o", "learned"),
        ("source_squared_l2", SOURCE, "s", "source alone"),
    ):
        axis.plot(times, _column(rows, field), mark + "-", color=colour, ms=3, label=name)
    axis.legend()
    return figure


# Colour and marker of each start of a certificate.
_MARKS = {"centre": (LEARNED, "o-"), "edge": (SOURCE, "s-")}


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
    for name, (colour, mark) in _MARKS.items():
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
    figure = new_figure(4.6, 3.2)
    axis = figure.subplots()
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
    figure = new_figure(9.0, 5.2)
    for axis, (title, fields) in zip(figure.subplots(2, 3).flat, _PANELS.items(), strict=True):
        for field, label in fields.items():
            values = np.array([getattr(record, field) for record in history])
            first = field in ("residual", "source_gap")
            colour, line = (SOURCE, "--") if first else (LEARNED, "-")
            axis.plot(times, _positive(values), line, color=colour, label=label)
        axis.set(title=title, xlabel="time $t$")
        _logarithmic(axis)
        if len(fields) > 1 and len(history):
            _legend_above(axis)
    return figure


def _logarithmic(axis: Axes) -> None:
    """Set logarithmic scales, or write a note if there are no positive values."""
    shown = [np.asarray(line.get_ydata()) for line in axis.lines]
    if any(np.isfinite(values).any() for values in shown):
        axis.set(xscale="log", yscale="log")
        low, high = axis.get_ylim()
        if high < 10 * low:  # only powers of ten have tick labels
            axis.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)))
        return
    steps = max((len(values) for values in shown), default=0)
    note = "zero throughout" if steps else "no steps"
    axis.text(0.5, 0.5, note, ha="center", va="center", transform=axis.transAxes)
    axis.set(xticks=[], yticks=[])


def _legend_above(axis: Axes) -> None:
    """Place the legend above the curves, which fill the panel."""
    if axis.get_yscale() == "log":
        low, high = axis.get_ylim()
        axis.set_ylim(low, high * (high / low) ** 0.25)
    axis.legend(loc="upper center", ncols=2, columnspacing=0.8, handlelength=1.4)


def _column(rows: Rows, field: str) -> np.ndarray:
    return np.array([row[field] for row in rows], dtype=float)


def _positive(values: np.ndarray) -> np.ndarray:
    """Replace values that a logarithmic axis cannot show by NaN."""
    return np.where(values > 0, values, np.nan)
