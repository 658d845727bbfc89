"""Figures of errors over time and of a training."""

import numpy as np
from matplotlib.figure import Figure

from ..density.transition import TransitionDensity
from ..evaluate.errors import bootstrap_mean
from ..evaluate.study import Study
from .style import LEARNED, SOURCE, new_figure, style
from .subjects import require_kind


def error_over_time(study: Study) -> Figure:
    """Mean relative squared error over the starts with its 95 % bootstrap interval."""
    require_kind("study", study, Study, "diracflow.evaluate.study")
    with style():
        figure = new_figure(4.6, 3.2)
        axis = figure.subplots()
        for errors, colour, name in (
            (study.learned, LEARNED, "learned"),
            (study.source, SOURCE, "source alone"),
        ):
            mean, low, high = bootstrap_mean(errors.squared_l2)
            axis.fill_between(study.times, low, high, color=colour, alpha=0.25, linewidth=0)
            axis.plot(study.times, mean, color=colour, marker="o", markersize=3, label=name)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="time $t$",
            ylabel="relative squared $L^2$ error",
            title=f"mean over {len(study.starts)} starts, 95 % interval",
        )
        axis.legend()
        return figure


# Titles of the panels, and what each shows: fields of a record with their labels.
_PANELS: dict[str, dict[str, str | None]] = {
    "relative residual of the velocity": {"residual": "in sample", "fresh_residual": "fresh"},
    "total variation at most, mean so far": {"bound": None},
    "what the flow has to do": {"source_gap": "gap to the source", "forcing": "forcing"},
    r"step length in $\sqrt{t}$": {"length": None},
    "effective rank": {"rank": None},
    "condition number, at least": {"condition": None},
}


def training_history(density: TransitionDensity) -> Figure:
    """Residuals, what they add up to, sizes, steps and rank over the course of a training."""
    require_kind("density", density, TransitionDensity, "diracflow.learn")
    # The first step has no velocity before it to judge.
    history = density.facts.history[1:]
    times = np.array([record.time for record in history])
    with style():
        figure = new_figure(9.0, 5.2)
        for axis, (title, fields) in zip(figure.subplots(2, 3).flat, _PANELS.items(), strict=True):
            for field, label in fields.items():
                values = [getattr(record, field) for record in history]
                colour = SOURCE if field in ("residual", "source_gap") else LEARNED
                axis.loglog(times, values, color=colour, label=label)
            axis.set(title=title, xlabel="time $t$")
            if len(fields) > 1:
                axis.legend()
        return figure
