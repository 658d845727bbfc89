r"""The lattice of a density: how fine, where its points lie, and whether it suffices.

The sum over a lattice of spacing $h$ errs, for a Gaussian of standard deviation $\sigma$, by the
share $2\exp(-2\pi^2\sigma^2/h^2)$. Widths are taken of densities after half a leg, the shortest
time after which the lattice is used, and given the other component, for a narrow ellipse may lie
aslant. Points are kept around where paths of the learned process have been.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..galerkin.collocation import sobol
from ..problem.laws import AbstractLaw
from ..training.legs import meets_in_lattice
from .lattice import Lattice, log_row
from .legs import Course, rows_of_noise

# Spacing in widths, of which one in ten is narrower: an error of 7e-6 for a density. A product of
# two is narrower: just above one leg an Ornstein-Uhlenbeck process is off by 1.4e-4 in total
# variation, after two whole legs by 5e-7. A lattice may be coarser if it would have too many
# points, up to an error of 1e-2; what it does to masses decides, see below.
_SPACING, _NARROW, _COARSEST = 1.25, 0.1, 2.0
_MOST_POINTS = 1536
# Points of the lattice are kept within so many spacings of where paths have been.
_AROUND = 3
_PATHS, _IMAGES = 1024, 32
# Share of the mass that may be lost, or counted twice, over the first leg and a whole one.
_LOST = 0.01


def lattice_for(course: Course, starts: AbstractLaw) -> Lattice | None:
    """The lattice of a density, or nothing where points would be too many or would not suffice.

    `starts` is the law of all that is given, in the coordinates of the ansatz.
    """
    sde = course.ansatz.source.sde
    if course.most == 1 or not meets_in_lattice(sde, starts):
        return None
    with jax.enable_x64(True):
        begun = jnp.asarray(starts.transport(sobol(jr.key(0), _PATHS, sde.dim)))
        visited, widths = map(np.asarray, _pilot(course, begun))
        if not (np.all(np.isfinite(visited)) and np.all(np.isfinite(widths))):
            return None
        spacing = _SPACING * np.quantile(widths, _NARROW, axis=0)
        points = _around(visited, spacing)
        if points is None:
            return None
        moves, masses, first = map(np.asarray, _moves(course, jnp.asarray(points[0]), begun))
    cell = np.prod(points[1])
    weights = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)
    lost = np.abs(cell * first.sum(axis=1) - 1).mean() + weights @ np.abs(cell * masses - 1)
    if not lost <= _LOST:
        return None
    return Lattice(points[0], powers(moves, course.most))


def powers(moves: Float[np.ndarray, "n n"], legs: int) -> Float[np.ndarray, "powers n n"]:
    """The first, second, fourth, ... power, as many as that number of legs takes."""
    found = []
    for _ in range(max(legs - 2, 0).bit_length()):
        found.append(moves)
        moves = moves @ moves
    return np.stack(found) if found else np.zeros((0, *moves.shape))


def _around(
    visited: Float[np.ndarray, "m d"], spacing: Float[np.ndarray, " d"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " d"]] | None:
    """Points around those visited, and their spacing: the one given, or as fine as may be."""
    dim = len(spacing)
    steps = np.stack(np.meshgrid(*[np.arange(-_AROUND, _AROUND + 1)] * dim), -1).reshape(-1, dim)
    steps = steps[np.sum(steps**2, axis=1) <= _AROUND**2]
    coarser = 1.0
    while coarser <= _COARSEST / _SPACING:
        wide = coarser * spacing
        cells = np.unique(np.rint(visited / wide).astype(np.int64), axis=0)
        cells = np.unique((cells[:, None] + steps).reshape(-1, dim), axis=0)
        if len(cells) <= _MOST_POINTS:
            return cells * wide, wide
        coarser *= 1.01 * (len(cells) / _MOST_POINTS) ** (1 / dim)
    return None


@eqx.filter_jit
def _pilot(
    course: Course, starts: Float[Array, "n d"]
) -> tuple[Float[Array, "m d"], Float[Array, "k d"]]:
    """Where paths are after legs, and widths of densities after half a leg."""
    dim, reach = starts.shape[1], jnp.asarray(course.reach)
    whole, half = (course.ansatz.at(course.trajectory(t)) for t in (reach, reach / 2))
    rows = jr.normal(jr.key(1), (len(starts), course.most - 1, dim))
    images = jnp.asarray(rows_of_noise(0, _IMAGES, 2, dim)[:, 0])

    def visits(start: Array, rows: Array) -> Float[Array, "legs d"]:
        early = half.from_noise(rows[0], reach / 2, start)

        def move(now: Array, row: Array) -> tuple[Array, Array]:
            moved = whole.from_noise(row, reach, now)
            return moved, moved

        return jnp.concatenate([early[None], jax.lax.scan(move, start, rows)[1]])

    def width(start: Array) -> Float[Array, " d"]:
        ends = jax.vmap(lambda row: half.from_noise(row, reach / 2, start))(images)
        precision = jnp.linalg.inv(jnp.atleast_2d(jnp.cov(ends, rowvar=False)))
        return 1 / jnp.sqrt(jnp.diag(precision))

    visited = jax.lax.map(lambda row: visits(*row), (starts, rows), batch_size=256)
    begins = jnp.concatenate([starts, visited[:, -1]])
    return visited.reshape(-1, dim), jax.lax.map(width, begins, batch_size=64)


@eqx.filter_jit
def _moves(
    course: Course, points: Float[Array, "n d"], starts: Float[Array, "m d"]
) -> tuple[Float[Array, "n n"], Float[Array, " n"], Float[Array, "m n"]]:
    """Probabilities of moves over a whole leg, the masses that they had, densities after a half.

    After half a leg they are narrowest.
    """
    reach = jnp.asarray(course.reach)

    def rows(length: Float[Array, ""], starts: Float[Array, "k d"]) -> Float[Array, "k n"]:
        ansatz = course.ansatz.at(course.trajectory(length))
        return jax.lax.map(
            lambda start: log_row(ansatz, length, points, start), starts, batch_size=8
        )

    logs = rows(reach, points)
    masses = jnp.sum(jnp.exp(logs), axis=1)
    return jax.nn.softmax(logs, axis=1), masses, jnp.exp(rows(reach / 2, starts))
