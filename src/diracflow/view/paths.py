"""Figures of bridges and of filtered states over time."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..uses.bridges import Bridge
from ..uses.filtering import Filtered
from ..uses.weights import weighted_quantiles
from .axes import BANDS, fan, levels_of
from .figure_checks import require_kind
from .style import EXACT, LEARNED, SOURCE, new_figure, style

# Number of paths drawn.
_SHOWN = 60


@style()
def bridge_fan(bridge: Bridge) -> Figure:
    """Draw quantile bands and some paths of a bridge, one panel for each component.

    **Arguments:**

    - `bridge`: the result of `diracflow.bridge`.
    """
    require_kind("bridge", bridge, Bridge, "diracflow.bridge")
    times, paths = np.asarray(bridge.times), np.asarray(bridge.paths)
    weights, dim = np.asarray(bridge.weights), paths.shape[-1]
    levels, quantiles = levels_of(BANDS), jax.vmap(weighted_quantiles, (1, None, None), 1)
    # Paths are drawn in proportion to their weights.
    comb = (np.arange(_SHOWN) + 0.5) / _SHOWN
    shown = paths[np.minimum(np.searchsorted(np.cumsum(weights), comb), len(paths) - 1)]
    figure = new_figure(3.6 * dim + 0.6, 3.0)
    axes = figure.subplots(1, dim, squeeze=False)[0]
    for component, axis in enumerate(axes):
        values = jnp.asarray(paths[:, :, component])
        bands = dict(zip(levels, quantiles(values, bridge.weights, jnp.array(levels)), strict=True))
        axis.plot(times, shown[:, :, component].T, color="0.6", linewidth=0.3, alpha=0.5)
        fan(axis, times, bands)
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
    filtered: Filtered,
    observations: Float[ArrayLike, "n k"] | None = None,
    truth: Float[ArrayLike, "n d"] | None = None,
) -> Figure:
    """Draw filtering quantiles over time, one panel for each component.

    **Arguments:**

    - `filtered`: the result of `diracflow.filter`.
    - `observations`: observed values of the components, with NaN for those not observed.
    - `truth`: the hidden state at the same times, if known.
    """
    require_kind("filtered", filtered, Filtered, "diracflow.filter")
    times, table = np.asarray(filtered.times), np.asarray(filtered.quantiles)
    levels, dim = np.asarray(filtered.levels), filtered.means.shape[1]
    figure = new_figure(7.2, 0.6 + 2.0 * dim)
    axes = figure.subplots(dim, 1, squeeze=False, sharex=True)[:, 0]
    for component, axis in enumerate(axes):
        bands = dict(zip(levels.tolist(), table[:, :, component].T, strict=True))
        fan(axis, times, bands, tuple(_pairs(levels.tolist())))
        axis.plot(times, filtered.means[:, component], color=LEARNED, label="mean")
        _points(axis, times, truth, component, ".", EXACT, "hidden state")
        _points(axis, times, observations, component, "x", SOURCE, "observation")
        axis.set_ylabel(f"$x_{component + 1}$")
    axes[0].set_title(f"log-evidence {filtered.log_evidence:.2f}", loc="left")
    # Above the panels, because observations may lie anywhere within.
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=6)
    axes[-1].set_xlabel("time $t$")
    return figure


def _points(
    axis: Axes,
    times: np.ndarray,
    values: ArrayLike | None,
    component: int,
    mark: str,
    colour: str,
    label: str,
) -> None:
    if values is None:
        return
    table = np.asarray(values, dtype=float)
    if table.ndim not in (1, 2) or len(table) != len(times):
        raise ValueError(
            f"The {label} must have one row for each of the {len(times)} times; got shape "
            f"{table.shape}."
        )
    table = table.reshape(len(times), -1)
    if component < table.shape[1]:
        axis.plot(times, table[:, component], mark, color=colour, markersize=5, label=label)


def _pairs(levels: list[float]) -> list[tuple[float, float]]:
    """Return pairs of levels about one half, the outermost first."""
    ordered = sorted(levels)
    pairs = zip(ordered, reversed(ordered), strict=True)
    return [(low, high) for low, high in pairs if low < 0.5 < high]
