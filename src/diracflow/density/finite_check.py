"""Checks of a density that was read from a file.

A checksum detects accidents. It does not detect intent: whoever changes a file can compute a new
checksum. So a density is evaluated once before it is handed out. Compilation takes most of the
time, once for all densities of the same structure.
"""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..planning.settings import MOST_LEGS
from ..sde.conditioning import furthest
from ..sde.domains import require_inside
from ..sde.fingerprint import Fingerprint
from ..sde.laws import law_from
from ..storage.strict_json import DataFileError
from ..transition.transition_density import AbstractTransitionDensity
from .composed import ComposedDensity
from .learned import LearnedDensity, TransitionDensity

# Parameters start at order one and change by less; exponentials of larger ones overflow.
_LARGEST = 1e4
# Squares of clocks are times, up to rounding.
_ROUNDING = 1e-9
# Pairs of a start and a time at which the density is evaluated.
_EVALUATIONS = 64
# Of the draws of a law, a fraction of this size is as far from the centre; 64 draws are not.
_FAR = 1e-12


def require_sound(density: LearnedDensity, stored: Fingerprint) -> None:
    """Raise `DataFileError` unless a density is consistent and its values are finite."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(density):
        if isinstance(leaf, np.ndarray) and not np.all(np.isfinite(leaf)):
            raise DataFileError(f"`{jax.tree_util.keystr(path)[1:]}` must be finite.")
    _require_laws(density, stored)
    _require_composition(density)
    _require_path(_learned(density.base if isinstance(density, ComposedDensity) else density))
    if density.horizon == 0:
        return
    times = density.horizon * np.linspace(1 / _EVALUATIONS, 1, _EVALUATIONS)
    with jax.enable_x64(True):
        starts = jnp.asarray(np.resize(stored.given, (_EVALUATIONS, stored.given.shape[1])))
        values = np.asarray(_values(density._without_provenance(), jnp.asarray(times), starts))
    if not np.all(np.isfinite(values)):
        raise DataFileError("it describes a density whose values are not finite.")


def _require_laws(density: LearnedDensity, stored: Fingerprint) -> None:
    """Raise unless laws and maps are valid and the points of the fingerprint follow the laws."""
    scope, sde = density.scope, density.sde
    for law in (scope.starts, *scope.params, *([scope.start_times] if scope.start_times else [])):
        law_from(law.describe())  # which checks parameters
    for part in density.chart.maps:
        dataclasses.replace(part)  # which checks numbers
    if scope.law.dim != stored.given.shape[1] or scope.names != sde.params:
        raise DataFileError(
            f"its laws must be those of {stored.given.shape[1]} numbers, of which "
            f"{list(sde.params)} are parameters; got {scope.law.dim} and {list(scope.names)}."
        )
    with jax.enable_x64(True):
        require_inside(sde.domain, jnp.asarray(stored.given[:, : sde.dim]))
        squared = np.asarray(scope.squared_distance(jnp.asarray(stored.given)))
    if not np.all(squared <= furthest(scope.freedom, _FAR)):
        raise DataFileError("the starts of its fingerprint must be draws of its laws.")


def _require_path(density: TransitionDensity) -> None:
    path, reach = density.trajectory, density.horizon
    clocks = path.clocks
    if clocks[0] < 0 or np.any(np.diff(clocks) <= 0):
        raise DataFileError("`clocks` must increase, from zero or later.")
    with np.errstate(over="ignore"):
        gaps = np.diff(clocks)[:, None]
        sizes = path.thetas, gaps * path.first, gaps * path.last
        largest = max(np.abs(table).max(initial=0) for table in sizes)
    if largest > _LARGEST:
        raise DataFileError(
            f"its parameters reach {largest:.3g}; they must be at most {_LARGEST:g}."
        )
    # A density that equals its source has taken no step.
    if len(clocks) > 1 and not math.isclose(clocks[-1] ** 2, reach, rel_tol=_ROUNDING):
        raise DataFileError(
            f"`clocks` must end at the square root of the trained time, {math.sqrt(reach):g}; got "
            f"{clocks[-1]:g}."
        )


def _require_composition(density: LearnedDensity) -> None:
    """Raise unless dimensions, subintervals and lattice fit together."""
    legs, lattice, base = 1, None, density
    if isinstance(density, ComposedDensity):
        legs, lattice, base = density.legs, density.lattice, _learned(density.base)
    sizes = density.dim, density.noise_dim, density.params
    expected = density.sde.dim, legs * density.sde.dim, density.sde.params
    longest = legs * density.reach * (1 + _ROUNDING)
    fits = density.horizon <= longest and density.reach <= base.horizon
    if sizes != expected or not 1 <= legs <= MOST_LEGS or not fits:
        raise DataFileError(
            f"its dimensions must be {expected}, with 1 to {MOST_LEGS} subintervals of "
            f"{density.reach:g} up to its horizon; got {sizes} and {legs} up to "
            f"{density.horizon:g}."
        )
    powers = max(legs - 2, 0).bit_length()
    if lattice is not None and (lattice.points.shape[1], len(lattice.moves)) != (
        density.dim,
        powers,
    ):
        raise DataFileError(
            f"its lattice must have moves over {powers} powers of two subintervals."
        )


def _learned(base: AbstractTransitionDensity) -> TransitionDensity:
    if not isinstance(base, TransitionDensity):
        raise DataFileError("a composed density must hold a learned one.")
    return base


@eqx.filter_jit
def _values(
    density: AbstractTransitionDensity, times: Float[Array, " n"], starts: Float[Array, "n d+k"]
) -> Float[Array, " n"]:
    def one(pair: tuple[Array, Array]) -> Float[Array, ""]:
        time, start = pair
        state = density._at_time(time)
        end = density._from_noise(state, jnp.zeros(density.noise_dim), start)
        return density._log_prob(state, end, start)

    return jax.lax.map(one, (times, starts))
