"""Figures of errors over time and of a training."""

import numpy as np
from matplotlib.figure import Figure

from ..density.transition import TransitionDensity
from ..evaluate.errors import bootstrap_mean
from ..evaluate.study import Study
from .style import LEARNED, SOURCE, new_figure, style


def error_over_time(study: Study) -> Figure:
    """Mean relative squared error over the starts with its 95 % bootstrap interval."""
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


def training_history(density: TransitionDensity) -> Figure:
    """Residuals, step lengths and rank over the course of a training."""
    history = density.facts.history
    times = np.array([record.time for record in history])
    with style():
        figure = new_figure(9.0, 2.8)
        residuals, steps, ranks = figure.subplots(1, 3)
        residuals.loglog(times, [r.residual for r in history], label="in sample", color=SOURCE)
        # The first step has no velocity before it to judge.
        fresh = [r.fresh_residual for r in history[1:]]
        residuals.loglog(times[1:], fresh, label="fresh", color=LEARNED)
        residuals.set(title="relative residual of the velocity", xlabel="time $t$")
        residuals.legend()
        steps.loglog(times, [record.length for record in history], color=LEARNED)
        steps.set(title=r"step length in $\sqrt{t}$", xlabel="time $t$")
        ranks.semilogx(times, [record.rank for record in history], color=LEARNED)
        width = density.trajectory.thetas.shape[1]
        ranks.set(title=f"effective rank, of {width} parameters", xlabel="time $t$")
        return figure
