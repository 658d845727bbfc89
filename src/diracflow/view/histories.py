"""Figures of errors and of the certificate over time, and of a training."""

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


def error_over_time(study: Study | Rows) -> Figure:
    """Mean relative squared error over the starts with its 95 % bootstrap interval.

    Takes a `Study` or the rows of its summary, such as the `facts.errors` of a density.
    """
    if not isinstance(study, Sequence):
        require_kind("study", study, Study, "diracflow.evaluate.study")
    rows = study.summary() if isinstance(study, Study) else study
    number = f" over {len(study.starts)} starts" if isinstance(study, Study) else ""
    times = _column(rows, "t")
    with style():
        figure = new_figure(4.6, 3.2)
        axis = figure.subplots()
        interval = _column(rows, "squared_l2_low"), _column(rows, "squared_l2_high")
        axis.fill_between(times, *interval, color=LEARNED, alpha=0.25, linewidth=0)
        for field, colour, mark, name in (
            ("squared_l2", LEARNED, "o", "learned"),
            ("source_squared_l2", SOURCE, "s", "source alone"),
        ):
            axis.plot(times, _column(rows, field), mark + "-", color=colour, ms=3, label=name)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="time $t$",
            ylabel="relative squared $L^2$ error",
            title=f"mean{number}, 95 % interval",
        )
        axis.legend()
        return figure


# How the starts of a certificate are drawn.
_MARKS = {"centre": (LEARNED, "o-"), "edge": (SOURCE, "s-")}


def certificate_over_time(density: LearnedDensity) -> Figure:
    """The bound on the total variation from centre and edge of the starts, with three standard
    errors; dashed, the true distance, mean over starts, where it is known."""
    rows, known = density.facts.certificate, density.facts.errors
    with style():
        figure = new_figure(4.6, 3.2)
        axis = figure.subplots()
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
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="time $t$",
            ylabel="total variation",
            title="distance to the true density, at most",
        )
        axis.legend()
        return figure


# Titles of the panels with the unit, and what each shows: fields of a record with their labels.
_PANELS: dict[str, dict[str, str | None]] = {
    "residual, share of the forcing": {"residual": "in sample", "fresh_residual": "fresh"},
    "total variation at most, mean so far": {"bound": None},
    "what the flow has to do (nats)": {"source_gap": "gap to the source", "forcing": "forcing"},
    r"step length in $\sqrt{t}$": {"length": None},
    "effective rank": {"rank": None},
    "condition number, at least": {"condition": None},
}


def training_history(density: LearnedDensity) -> Figure:
    """Residuals, what they add up to, sizes, steps and rank over the course of a training."""
    require_kind("density", density, LearnedDensity, "diracflow.learn")
    # The first step has no velocity before it to judge.
    history = density.facts.history[1:]
    times = np.array([record.time for record in history])
    with style():
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
    """Logarithmic scales, or words where there is nothing to show on them."""
    shown = [np.asarray(line.get_ydata()) for line in axis.lines]
    if any(np.isfinite(values).any() for values in shown):
        axis.set(xscale="log", yscale="log")
        low, high = axis.get_ylim()
        if high < 10 * low:  # ticks at powers of ten, and no others
            axis.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)))
        return
    steps = max((len(values) for values in shown), default=0)
    words = "zero throughout" if steps else "no steps"
    axis.text(0.5, 0.5, words, ha="center", va="center", transform=axis.transAxes)
    axis.set(xticks=[], yticks=[])


def _legend_above(axis: Axes) -> None:
    """A legend over the curves, which fill the panel."""
    if axis.get_yscale() == "log":
        low, high = axis.get_ylim()
        axis.set_ylim(low, high * (high / low) ** 0.25)
    axis.legend(loc="upper center", ncols=2, columnspacing=0.8, handlelength=1.4)


def _column(rows: Rows, field: str) -> np.ndarray:
    return np.array([row[field] for row in rows], dtype=float)


def _positive(values: np.ndarray) -> np.ndarray:
    """The values, with gaps where a logarithmic axis has no place for them."""
    return np.where(values > 0, values, np.nan)
