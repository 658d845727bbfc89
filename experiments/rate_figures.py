"""Figures of the study of short rates."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from diracflow.view.axes import EXACT, LEARNED, SOURCE, panels, style

# Exact densities are dashed.
LOOKS = {
    "learned": (LEARNED, "-"),
    "exact": (EXACT, "--"),
    "cir": (LEARNED, "-"),
    "ckls": (SOURCE, "-."),
    "cir exact": (EXACT, "--"),
}


@style()
def draw_posteriors(draws: Mapping[str, Mapping[str, np.ndarray]], path: Path) -> None:
    """Posteriors of each parameter with both densities."""
    names = list(next(iter(draws.values())))
    figure, [row] = panels(3.2 * len(names), 2.6, 1, len(names))
    for axes, name in zip(row, names, strict=True):
        bins = np.histogram_bin_edges(np.concatenate([d[name] for d in draws.values()]), 40)
        for law, values in draws.items():
            colour, line = LOOKS[law]
            look = {"histtype": "step", "color": colour, "linestyle": line, "label": law}
            axes.hist(values[name], bins, density=True, **look)
        axes.set(xlabel=name, yticks=[])
    axes.legend()
    figure.savefig(path)


@style()
def draw_series(
    dates: np.ndarray, rates: np.ndarray, transforms: Mapping[str, np.ndarray], path: Path
) -> None:
    """The series, and for each density the distribution of its probability transforms."""
    figure, [[left, right]] = panels(9.0, 2.8, 1, 2, width_ratios=[2, 1])
    left.plot(dates, 100 * rates, lw=1)
    left.set(ylabel="three-month bills, %")
    shares = np.linspace(0, 1, len(rates) - 1)
    right.plot([0, 1], [0, 1], color="0.8")
    for name, values in transforms.items():
        colour, line = LOOKS[name]
        right.plot(np.sort(values), shares, line, color=colour, lw=1, label=name)
    right.set(xlabel="probability transform", ylabel="share below", xlim=(0, 1), ylim=(0, 1))
    right.legend()
    figure.savefig(path)
