"""Figures of the study of short rates."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

COLOURS = {"learned": "C0", "exact": "0.3", "cir": "C0", "ckls": "C1", "cir exact": "0.3"}


def draw_posteriors(draws: Mapping[str, Mapping[str, np.ndarray]], path: Path) -> None:
    """Posteriors of each parameter with both densities."""
    names = list(next(iter(draws.values())))
    figure = Figure(figsize=(3.2 * len(names), 2.6), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        bins = np.histogram_bin_edges(np.concatenate([d[name] for d in draws.values()]), 40)
        for law, values in draws.items():
            axes.hist(
                *(values[name], bins), density=True, histtype="step", color=COLOURS[law], label=law
            )
        axes.set(xlabel=name, yticks=[])
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def draw_series(
    dates: np.ndarray, rates: np.ndarray, transforms: Mapping[str, np.ndarray], path: Path
) -> None:
    """The series, and for each density the distribution of its probability transforms."""
    figure = Figure(figsize=(9.0, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    left.plot(dates, 100 * rates, lw=1)
    left.set(ylabel="three-month bills, %")
    shares = np.linspace(0, 1, len(rates) - 1)
    right.plot([0, 1], [0, 1], color="0.8")
    for name, values in transforms.items():
        right.plot(np.sort(values), shares, color=COLOURS[name], lw=1, label=name)
    right.set(xlabel="probability transform", ylabel="share below", xlim=(0, 1), ylim=(0, 1))
    right.legend(frameon=False)
    figure.savefig(path, dpi=150)
