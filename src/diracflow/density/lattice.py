r"""Composition over the points of a lattice.

In one and two dimensions the integrals over intermediate states are sums over a lattice. Densities
are smooth, and for smooth functions such sums converge faster than any power of the spacing. A
subinterval is then a matrix of transition probabilities between points, and several are a power of
it, so that many subintervals cost no more than two. Rows are normalised, which keeps the mass at
one.

The sum over a lattice of spacing $h$ has, for a Gaussian of standard deviation $\sigma$, a relative
error of $2\exp(-2\pi^2\sigma^2/h^2)$. Widths are those of densities after half a subinterval, the
shortest time for which the lattice is used. They are conditional on the other component, because a
narrow ellipse may be rotated. Points are kept near simulated paths.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr, softmax

from ..planning.subinterval_rule import PLANE
from ..sde.conditioning import OUTSIDE, furthest
from ..sde.laws import AbstractLaw
from ..sde.quasi_random import sobol
from ..training.stages import begin, parts
from ..transition.transition_density import AbstractTransitionDensity
from .subintervals import TOGETHER, Beginnings, Division, Subintervals, noise_rows

# Spacing in units of a width that one in ten is below: an error of 7e-6 for a density. A product of
# two densities is narrower. Just above one subinterval its error is 4e-3 at most; an Ornstein--
# Uhlenbeck process then has an error of 1.4e-4 in total variation, and of 5e-7 after two whole
# subintervals. The spacing is larger if there were too many points, up to an error of 2e-2 for
# products.
_SPACING, _NARROW, _COARSEST = 1.25, 0.1, 1.5
MOST_POINTS = 1536
# Points are kept within this number of spacings from simulated paths. Paths start at draws of the
# law, and at starts up to the edge of what is answered without a warning, in several directions and
# with several noises each. Masses are checked from other draws.
_AROUND = 3
_PATHS, _HELD_OUT, _DIRECTIONS, _NOISES, _IMAGES = 1024, 256, 64, 4, 32
_RADII = (0.7, 0.85, 1.0)
# Rows of the table of moves that are computed together.
_ROWS = 128
# Part of the mass that may be lost, or counted twice, over all subintervals.
_LOST = 0.01
# Rows of probabilities sum to one, up to rounding.
_UNIT = 1e-9


class Lattice(eqx.Module):
    """Points, and the transition probabilities between them over 1, 2, 4, ... subintervals."""

    points: Float[Array | np.ndarray, "n d"]
    moves: Float[Array | np.ndarray, "powers n n"]

    def __check_init__(self) -> None:
        count = len(self.points)
        if self.points.ndim != 2 or self.moves.shape[1:] != (count, count) or count == 0:
            raise ValueError(
                "A lattice has points of shape (n, d) and moves of shape (powers, n, n); got "
                f"{self.points.shape} and {self.moves.shape}."
            )
        moves = np.asarray(self.moves)
        if np.any(moves < 0) or not np.allclose(moves.sum(axis=-1), 1.0, rtol=0, atol=_UNIT):
            raise ValueError("Rows of the moves of a lattice must be probabilities.")


def weighted(
    base: AbstractTransitionDensity,
    times: Subintervals,
    start: Float[Array, " d"],
    lattice: Lattice,
) -> Beginnings:
    """Return the points with the probabilities that the last subinterval begins there."""
    points = jnp.asarray(lattice.points, start.dtype)
    weights = jax.nn.softmax(log_row(base, times.outer, points, start))
    inner = times.number - 2
    for power, moves in enumerate(lattice.moves):
        moved = weights @ jnp.asarray(moves, start.dtype)
        weights = jnp.where((inner >> power) & 1 == 1, moved, weights)
    return Beginnings(points, weights)


def log_row(
    base: AbstractTransitionDensity,
    state: object,
    points: Float[Array, "n d"],
    start: Float[Array, " d"],
) -> Float[Array, " n"]:
    """Return the log-densities at all points from one start."""
    value = jax.checkpoint(lambda y: base._log_prob(state, y, start))
    return jax.lax.map(value, points, batch_size=TOGETHER)


def lattice_for(
    base: AbstractTransitionDensity, division: Division, law: AbstractLaw
) -> Lattice | None:
    """Return the lattice of a composed density, or `None` if there is no accurate one.

    `base` and `law` are those in coordinates that range over the whole line.
    """
    dim = base.dim
    if division.most == 1 or dim > PLANE or (law.dim or dim) != dim:
        return None
    with jax.enable_x64(True):
        draws, held_out = (
            jnp.asarray(law.transport(sobol(jr.key(seed), count, dim)))
            for seed, count in ((0, _PATHS), (1, _HELD_OUT))
        )
        begin("lattice, paths")
        visited, widths = map(np.asarray, _pilot(base, division, draws, _far_out(law, dim)))
        if not (np.all(np.isfinite(visited)) and np.all(np.isfinite(widths))):
            return None
        found = _around(visited, _SPACING * np.quantile(widths, _NARROW, axis=0))
        if found is None:
            return None
        points, spacing = found
        moves, masses, first = _moves(base, division.reach, points, np.asarray(held_out))
    cell = np.prod(spacing)
    lost = _lost(cell * first, moves, cell * masses, division.most)
    return Lattice(points, powers(moves, division.most)) if lost <= _LOST else None


def powers(moves: Float[np.ndarray, "n n"], legs: int) -> Float[np.ndarray, "powers n n"]:
    """Return the first, second, fourth, ... power, as far as that number of subintervals needs."""
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
    """Return the mass that sums lose or count twice over all subintervals, averaged over starts.

    `first` has the probabilities of points after the first subinterval; `masses` are the sums of
    the rows of `moves` before they were normalised.
    """
    lost = np.abs(first.sum(axis=1) - 1).mean()
    weights = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)
    for _ in range(legs - 2):
        lost += weights @ np.abs(masses - 1)
        weights = weights @ moves
    return float(lost)


def _far_out(law: AbstractLaw, dim: int) -> Float[Array, "n d"]:
    """Return starts at and below the largest distance that is answered without a warning."""
    turns = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    both = np.array([[1], [-1]])
    directions = np.stack([np.cos(turns), np.sin(turns)], axis=1) if dim == 2 else both
    edge = np.sqrt(furthest(dim, OUTSIDE))
    rings = np.concatenate([share * edge * directions for share in _RADII])
    return jnp.asarray(law.transport(ndtr(np.repeat(rings, _NOISES, axis=0))))


def _around(
    visited: Float[np.ndarray, "m d"], spacing: Float[np.ndarray, " d"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " d"]] | None:
    """Return points near those visited and their spacing, which is enlarged if need be."""
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
    base: AbstractTransitionDensity,
    division: Division,
    draws: Float[Array, "n d"],
    far_out: Float[Array, "m d"],
) -> tuple[Float[Array, "k d"], Float[Array, "2n d"]]:
    """Simulate paths; return where they were, and widths of densities after half a subinterval."""
    dim, reach = base.dim, jnp.asarray(division.reach)
    whole, half = (base._at_time(t) for t in (reach, reach / 2))
    starts = jnp.concatenate([draws, far_out])
    rows = jr.normal(jr.key(1), (len(starts), division.most - 1, base.noise_dim))
    images = jnp.asarray(noise_rows(0, _IMAGES, 2, base.noise_dim)[:, 0])

    def visits(start: Array, rows: Array) -> Float[Array, "most-1 2 d"]:
        """Simulate whole subintervals, after a whole first one and after half of it."""
        first = jnp.stack([base._from_noise(state, rows[0], start) for state in (whole, half)])

        def step(now: Array, row: Array) -> tuple[Array, Array]:
            moved = jax.vmap(lambda y: base._from_noise(whole, row, y))(now)
            return moved, moved

        return jnp.concatenate([first[None], jax.lax.scan(step, first, rows[1:])[1]])

    def width(start: Array) -> Float[Array, " d"]:
        ends = jax.vmap(lambda row: base._from_noise(half, row, start))(images)
        precision = jnp.linalg.inv(jnp.atleast_2d(jnp.cov(ends, rowvar=False)))
        return 1 / jnp.sqrt(jnp.diag(precision))

    visited = jax.lax.map(lambda row: visits(*row), (starts, rows), batch_size=256)
    begins = jnp.concatenate([draws, visited[: len(draws), -1, 0]])
    return visited.reshape(-1, dim), jax.lax.map(width, begins, batch_size=64)


def _moves(
    base: AbstractTransitionDensity,
    reach: float,
    points: Float[np.ndarray, "n d"],
    starts: Float[np.ndarray, "m d"],
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, " n"], Float[np.ndarray, "m n"]]:
    """Return transition probabilities, their sums before normalisation, and first densities.

    The last are densities after half a subinterval, when they are narrowest.
    """
    # Parts of equal size share one program; the last of each table is filled up.
    cut = lambda table: np.resize(table, (-(-len(table) // _ROWS), _ROWS, table.shape[1]))
    tasks = [(reach, part) for part in cut(points)] + [(reach / 2, part) for part in cut(starts)]
    blocks = [
        np.asarray(_log_rows(base, jnp.asarray(length), jnp.asarray(points), jnp.asarray(part)))
        for length, part in parts("lattice", tasks)
    ]
    logs, late = np.concatenate(blocks)[: len(points)], np.concatenate(blocks[-len(cut(starts)) :])
    return softmax(logs, axis=1), np.exp(logs).sum(axis=1), np.exp(late[: len(starts)])


@eqx.filter_jit
def _log_rows(
    base: AbstractTransitionDensity,
    length: Float[Array, ""],
    points: Float[Array, "n d"],
    starts: Float[Array, "k d"],
) -> Float[Array, "k n"]:
    state = base._at_time(length)
    return jax.lax.map(lambda start: log_row(base, state, points, start), starts, batch_size=8)
