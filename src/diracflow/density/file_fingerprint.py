"""Values by which a file recognises the SDE it was learned for, and the code that reads it.

Of the SDE: its coefficients at some starts and times. Of the rest: size and mean of the arrays that
are computed again from the header, such as the moments of the starts or the splines of the source.
If another version of the code computed them differently, parameters would mean something else.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from ..flow.ansatz import AbstractAnsatz
from ..sde.chart import Chart
from ..sde.conditioning import ConditioningLaws, furthest
from ..sde.domains import require_inside
from ..sde.fingerprint import coefficients
from ..sde.sde import SDE
from ..storage.errors import DataFileError

_PROBES = 8
# An SDE that holds its constants in float32 agrees to single precision only.
_RELATIVE, _OF_COMPONENT, _OF_ALL = 1e-5, 1e-6, 1e-9
# One draw in so many lies as far out as this; eight of them do not.
_FAR = 1e-12


def probe_values(
    sde: SDE, laws: ConditioningLaws, start_time: float | None, horizon: float
) -> dict[str, np.ndarray]:
    """Points, and the coefficients there."""
    with jax.enable_x64(True):
        x = laws.law.sample(jr.key(1), (_PROBES,))
        tau = jnp.linspace(0, horizon, _PROBES)
        points = {"probe_tau": np.asarray(tau), "probe_x": np.asarray(x)}
        return points | _coefficients(sde, start_time, tau, x)


def compare_probes(sde: SDE, arrays: dict[str, np.ndarray], start_time: float | None) -> None:
    """Raise unless the SDE has the stored coefficients at the stored points."""
    with jax.enable_x64(True):
        points = (jnp.asarray(arrays[name]) for name in ("probe_tau", "probe_x"))
        found = _coefficients(sde, start_time, *points)
    for name, values in found.items():
        stored = arrays[name]
        if not np.isfinite(stored).any():
            raise DataFileError(f"`{name}` has no finite value by which to know the SDE.")
        close = _close(values, stored)
        if not close.all():
            worst = int(np.argmin(close.reshape(len(close), -1).all(axis=1)))
            x = arrays["probe_x"][worst]
            t = arrays["probe_tau"][worst] + (x[-1] if start_time is None else start_time)
            raise DataFileError(
                f"it was learned for another SDE: at t={t:g}, x={x.tolist()} its "
                f"`{name.removeprefix('probe_')}` was {stored[worst].tolist()}; that of the SDE "
                f"given is {values[worst].tolist()}. Pass the SDE that was learned."
            )


def require_among_starts(
    laws: ConditioningLaws, chart: Chart, arrays: dict[str, np.ndarray]
) -> None:
    """Raise unless the points of the probes could be draws of the laws, inside the domain."""
    with jax.enable_x64(True):
        require_inside(chart.sde.domain, jnp.asarray(arrays["probe_x"][:, : chart.sde.dim]))
        squared = np.asarray(laws.squared_distance(jnp.asarray(arrays["probe_x"])))
    if not np.all(squared <= furthest(laws.freedom, _FAR)):
        raise DataFileError("`probe_x` must be draws of `starts` and `params`, but lies outside.")


def marks(ansatz: AbstractAnsatz) -> Float[np.ndarray, "n 2"]:
    """Mean and size of each array of an ansatz but the parameters and those of the SDE."""
    rest = jax.tree.map(lambda part: None if _is_sde(part) else part, ansatz, is_leaf=_is_sde)
    parts = (eqx.filter(rest.flow, eqx.is_inexact_array, inverse=True), rest)
    rest = eqx.tree_at(lambda a: a.flow, rest, parts[0])
    leaves = [np.asarray(a, np.float64) for a in jax.tree.leaves(eqx.filter(rest, eqx.is_array))]
    figures = [(a.mean(), np.sqrt(np.mean(a**2))) for a in leaves if a.size]
    return np.array(figures, np.float64).reshape(-1, 2)


def _is_sde(part: Any) -> bool:
    return isinstance(part, SDE)


def compare_marks(found: np.ndarray, stored: np.ndarray | None) -> None:
    """Raise unless an ansatz built again is the one that was saved."""
    if not np.all(np.isfinite(found)):
        raise DataFileError("what it describes has no finite source.")
    if stored is None:
        return
    if found.shape != stored.shape or not np.allclose(
        found, stored, rtol=1e-6, atol=1e-9 * np.abs(found).max(initial=0)
    ):
        raise DataFileError(
            "this version of diracflow builds another source from it than the one that wrote it. "
            "Read it with that version (`diracflow info` names it), or learn the model again."
        )


def _close(values: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Entry by entry, with a scale for each component: coefficients may be small."""
    size = np.abs(np.where(np.isfinite(stored), stored, 0.0))
    scale = _OF_COMPONENT * size.max(axis=0) + _OF_ALL * size.max()
    with np.errstate(invalid="ignore"):
        near = np.abs(values - stored) <= _RELATIVE * np.abs(stored) + scale
    same = (values == stored) | (np.isnan(values) & np.isnan(stored))
    return np.where(np.isfinite(values) & np.isfinite(stored), near, same)


def _coefficients(
    sde: SDE, start_time: float | None, tau: jax.Array, x: jax.Array
) -> dict[str, np.ndarray]:
    drift, diffusion = coefficients(sde, start_time, tau, x)
    return {"probe_drift": drift, "probe_diffusion": diffusion}
