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
from scipy.special import ndtr

from ..planning.subinterval_rule import meets_in_lattice
from ..sde.conditioning import furthest
from ..sde.laws import AbstractLaw
from ..sde.quasi_random import sobol
from .guard import OUTSIDE
from .lattice import Lattice, log_row
from .subintervals import Course, rows_of_noise

# Spacing in widths, of which one in ten is narrower: an error of 7e-6 for a density. A product of
# two is narrower: just above one leg it errs by 4e-3 at most, and an Ornstein-Uhlenbeck process is
# off by 1.4e-4 in total variation, after two whole legs by 5e-7. A lattice may be coarser if it
# would have too many points, up to an error of 2e-2 for products.
_SPACING, _NARROW, _COARSEST = 1.25, 0.1, 1.5
MOST_POINTS = 1536
# Points of the lattice are kept within so many spacings of where paths have been: from draws of the
# law, and from starts as far out as are answered without a warning, in some directions and with
# some noise each. Masses are looked at from other draws.
_AROUND = 3
_PATHS, _FRESH, _DIRECTIONS, _NOISES, _IMAGES = 1024, 256, 64, 4, 32
_RADII = (0.7, 0.85, 1.0)
# Share of the mass that may be lost, or counted twice, over all legs.
_LOST = 0.01


def lattice_for(course: Course, law: AbstractLaw) -> Lattice | None:
    """The lattice of a density, or nothing where points would be too many or would not suffice.

    `law` is that of all that is given, in the coordinates of the ansatz.
    """
    sde = course.ansatz.source.sde
    if course.most == 1 or course.reach == 0 or not meets_in_lattice(sde, law):
        return None
    with jax.enable_x64(True):
        draws, fresh = (
            jnp.asarray(law.transport(sobol(jr.key(seed), count, sde.dim)))
            for seed, count in ((0, _PATHS), (1, _FRESH))
        )
        visited, widths = map(np.asarray, _pilot(course, draws, _far_out(law, sde.dim)))
        if not (np.all(np.isfinite(visited)) and np.all(np.isfinite(widths))):
            return None
        found = _around(visited, _SPACING * np.quantile(widths, _NARROW, axis=0))
        if found is None:
            return None
        points, spacing = found
        moves, masses, first = map(np.asarray, _moves(course, jnp.asarray(points), fresh))
    cell = np.prod(spacing)
    lost = _lost(cell * first, moves, cell * masses, course.most)
    return Lattice(points, powers(moves, course.most)) if lost <= _LOST else None


def powers(moves: Float[np.ndarray, "n n"], legs: int) -> Float[np.ndarray, "powers n n"]:
    """The first, second, fourth, ... power, as many as that number of legs takes."""
    found: list[np.ndarray] = []
    for _ in range(max(legs - 2, 0).bit_length()):
        found.append(found[-1] @ found[-1] if found else moves)
    return np.stack(found) if found else np.zeros((0, *moves.shape))


def _lost(
    first: Float[np.ndarray, "m n"],
    moves: Float[np.ndarray, "n n"],
    masses: Float[np.ndarray, " n"],
    legs: int,
) -> float:
    """Share of the mass that sums miss or count twice, in the mean over starts, over all legs.

    `first` has the probabilities of points after the first leg, `masses` those of all points after
    a whole leg, before they were normalised.
    """
    lost = np.abs(first.sum(axis=1) - 1).mean()
    weights = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)
    for _ in range(legs - 2):
        lost += weights @ np.abs(masses - 1)
        weights = weights @ moves
    return float(lost)


def _far_out(law: AbstractLaw, dim: int) -> Float[Array, "n d"]:
    """Starts at the edge of what is answered without a warning, and on the way there."""
    turns = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    ways = np.stack([np.cos(turns), np.sin(turns)], axis=1) if dim == 2 else np.array([[1], [-1]])
    edge = np.sqrt(furthest(dim, OUTSIDE))
    rings = np.concatenate([share * edge * ways for share in _RADII])
    return jnp.asarray(law.transport(ndtr(np.repeat(rings, _NOISES, axis=0))))


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
        if len(cells) <= MOST_POINTS:
            return cells * wide, wide
        coarser *= 1.01 * (len(cells) / MOST_POINTS) ** (1 / dim)
    return None


@eqx.filter_jit
def _pilot(
    course: Course, draws: Float[Array, "n d"], far_out: Float[Array, "m d"]
) -> tuple[Float[Array, "k d"], Float[Array, "2n d"]]:
    """Where paths are after a half and whole legs, and widths of densities after half a leg."""
    dim, reach = draws.shape[1], jnp.asarray(course.reach)
    whole, half = (course.ansatz.at(course.trajectory(t)) for t in (reach, reach / 2))
    starts = jnp.concatenate([draws, far_out])
    rows = jr.normal(jr.key(1), (len(starts), course.most - 1, dim))
    images = jnp.asarray(rows_of_noise(0, _IMAGES, 2, dim)[:, 0])

    def visits(start: Array, rows: Array) -> Float[Array, "legs 2 d"]:
        """After whole legs, and after a half and whole ones."""
        both = [
            ansatz.from_noise(rows[0], length, start)
            for ansatz, length in ((whole, reach), (half, reach / 2))
        ]

        def move(now: Array, row: Array) -> tuple[Array, Array]:
            moved = jax.vmap(lambda y: whole.from_noise(row, reach, y))(now)
            return moved, moved

        first = jnp.stack(both)
        return jnp.concatenate([first[None], jax.lax.scan(move, first, rows[1:])[1]])

    def width(start: Array) -> Float[Array, " d"]:
        ends = jax.vmap(lambda row: half.from_noise(row, reach / 2, start))(images)
        precision = jnp.linalg.inv(jnp.atleast_2d(jnp.cov(ends, rowvar=False)))
        return 1 / jnp.sqrt(jnp.diag(precision))

    visited = jax.lax.map(lambda row: visits(*row), (starts, rows), batch_size=256)
    begins = jnp.concatenate([draws, visited[: len(draws), -1, 0]])
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
