"""The arrays of a model file: the path of the parameters, probes of the SDE, marks of the rest.

Densities whose later legs begin at the points of a lattice have these, too, and the probabilities
of moves between them.
"""

import math
from typing import Any

import numpy as np

from ..planning.subinterval_rule import PLANE
from ..storage.errors import DataFileError
from ..training.status import Status
from ..training.trajectory import Trajectory
from .lattice import Lattice
from .lattice_points import MOST_POINTS, powers

PATH = ("clocks", "thetas", "first", "last")
PROBES = ("probe_tau", "probe_x", "probe_drift", "probe_diffusion")
MARKS = "marks"  # files of earlier formats have none
LATTICE = ("lattice_points", "lattice_moves")
# Parameters start at order one and move by less; products of larger ones overflow.
_LARGEST = 1e6
_MOST_PROBES = 1000
# The squares of larger ones overflow.
_FURTHEST = 1e100
# Rows of probabilities sum to one, but for rounding.
_UNIT = 1e-9
# Squares of clocks are times, but for rounding.
_ROUNDING = 1e-9

Arrays = dict[str, np.ndarray]


def check_arrays(header: dict[str, Any], arrays: Arrays) -> None:
    """Raise unless the arrays are those that a header, checked before, asks for."""
    optional = [*([MARKS] if MARKS in arrays else []), *(LATTICE if LATTICE[0] in arrays else [])]
    names = {*PATH, *PROBES, *optional}
    if set(arrays) != names:
        raise DataFileError(f"its arrays must be {sorted(names)}; got {sorted(arrays)}.")
    wrong = [name for name in names if arrays[name].dtype != np.float64]
    if wrong:
        raise DataFileError(f"`{wrong[0]}` must be float64; got {arrays[wrong[0]].dtype}.")
    _check_shapes(header, arrays)
    _check_values(arrays)
    _check_times(header, arrays)
    if LATTICE[0] in arrays:
        _check_lattice(header, arrays)


def lattice_arrays(lattice: Lattice | None) -> Arrays:
    """What a file holds of a lattice: its points, and the moves over one leg if any are needed."""
    if lattice is None:
        return {}
    parts = map(np.asarray, (lattice.points, lattice.moves[:1]))
    return dict(zip(LATTICE, parts, strict=True))


def lattice_of(arrays: Arrays, legs: int) -> Lattice | None:
    """The lattice of a density with so many legs."""
    if LATTICE[0] not in arrays:
        return None
    points, moves = (arrays[name] for name in LATTICE)
    return Lattice(points, powers(moves[0], legs) if len(moves) else moves)


def trajectory_of(arrays: Arrays) -> Trajectory:
    """The path of the parameters."""
    return Trajectory(*(arrays[name] for name in PATH))


def _check_shapes(header: dict[str, Any], arrays: Arrays) -> None:
    dim, noise = header["sde"]["dim"], header["sde"]["noise_dim"]
    given = dim + len(header["params"]) + (header["start_time"] is None)
    knots, probes = arrays["clocks"].size, arrays["probe_tau"].size
    width = arrays["thetas"].shape[-1] if arrays["thetas"].ndim == 2 else -1
    expected = {
        "clocks": (knots,),
        "thetas": (knots, width),
        "first": (knots - 1, width),
        "last": (knots - 1, width),
        "probe_tau": (probes,),
        "probe_x": (probes, given),
        "probe_drift": (probes, dim),
        "probe_diffusion": (probes, dim, noise),
    }
    for name, shape in expected.items():
        if arrays[name].shape != shape or arrays[name].size == 0 < min(shape):
            raise DataFileError(f"`{name}` must have shape {shape}; got {arrays[name].shape}.")
    if knots == 0 or not 0 < probes <= _MOST_PROBES or width < 1:
        raise DataFileError("it must have knots, parameters and between 1 and 1000 probes.")
    if MARKS in arrays and (arrays[MARKS].ndim, arrays[MARKS].shape[-1:]) != (2, (2,)):
        raise DataFileError(f"`{MARKS}` must have two columns; got {arrays[MARKS].shape}.")


def _check_values(arrays: Arrays) -> None:
    # Coefficients may be infinite at a probe; that is then compared, too.
    for name in (*PATH, "probe_tau", "probe_x"):
        if not np.all(np.isfinite(arrays[name])):
            raise DataFileError(f"`{name}` must be finite.")
    with np.errstate(over="ignore"):  # what overflows is too large
        gaps = np.diff(arrays["clocks"])[:, None]
        moves = {name: gaps * arrays[name] for name in ("first", "last")}
    for name, sizes in {"thetas": arrays["thetas"], **moves}.items():
        largest = max(sizes.max(initial=0), -sizes.min(initial=0))
        if largest > _LARGEST:
            raise DataFileError(
                f"`{name}` moves parameters up to {largest:.3g}; at most {_LARGEST:g} makes sense."
            )


def _check_times(header: dict[str, Any], arrays: Arrays) -> None:
    clocks, horizon = arrays["clocks"], header["horizon"]
    reach = horizon / header["settings"]["legs"]
    if clocks[0] < 0 or np.any(np.diff(clocks) <= 0):
        raise DataFileError("`clocks` must increase, from zero or later.")
    if header["settings"]["flow"] == "monotone" and clocks[0] != 0:
        raise DataFileError(f"`clocks` must start at 0; got {clocks[0]:g}.")
    steps = len(clocks) - 1
    if len(header["history"]) != steps:
        raise DataFileError(
            f"`history` must tell of {steps} steps, as `clocks` does; got {len(header['history'])}."
        )
    # A density that is its source, at all times, has taken no step.
    still = steps == 0 and header["status"] == Status.FINISHED.name
    if not still and not math.isclose(clocks[-1] ** 2, reach, rel_tol=_ROUNDING):
        raise DataFileError(
            f"`clocks` must end at the square root of a leg of `horizon`, {math.sqrt(reach):g}; "
            f"got {clocks[-1]:g}."
        )
    times = [record["time"] for record in header["history"]]
    if any(isinstance(time, str) for time in times) or not np.allclose(
        times, clocks[1:] ** 2, rtol=_ROUNDING, atol=0
    ):
        raise DataFileError("`history` must have the times of `clocks`.")
    tau = arrays["probe_tau"]
    if tau[0] < 0 or np.any(np.diff(tau) < 0) or tau[-1] > horizon * (1 + _ROUNDING):
        raise DataFileError("`probe_tau` must be in order, and within the horizon.")


def _check_lattice(header: dict[str, Any], arrays: Arrays) -> None:
    points, moves = (arrays[name] for name in LATTICE)
    dim, legs = header["sde"]["dim"], header["settings"]["legs"]
    single = not header["params"] and header["start_time"] is not None
    count = len(points) if points.ndim == 2 else 0
    if legs == 1 or dim > PLANE or not single or not 0 < count <= MOST_POINTS:
        raise DataFileError(
            f"lattices have 1 to {MOST_POINTS} points in one or two dimensions, for densities of "
            "several legs without parameters or laws of start times; got points of shape "
            f"{points.shape} for {legs} legs in {dim} dimensions."
        )
    shapes = (count, dim), (int(legs > 2), count, count)
    for name, array, shape in zip(LATTICE, (points, moves), shapes, strict=True):
        if array.shape != shape:
            raise DataFileError(f"`{name}` must have shape {shape}; got {array.shape}.")
        if not np.all(np.abs(array) <= _FURTHEST):
            raise DataFileError(f"`{name}` must be finite, and at most {_FURTHEST:g}.")
    if np.any(moves < 0) or not np.allclose(moves.sum(axis=-1), 1.0, rtol=0, atol=_UNIT):
        raise DataFileError(f"rows of `{LATTICE[1]}` must be probabilities.")
