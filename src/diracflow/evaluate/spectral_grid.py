r"""Reference solutions of the Fokker--Planck equation in one and two dimensions.

The solver is a Fourier spectral method on a box. The density must be negligible outside the inner
two thirds of the box. The error falls faster than any power of the spacing. The Dirac start is a
sinc function under a Gaussian window: it contains all waves that do not decay at once, and it
vanishes at the faces. Time steps are those of the classical Runge--Kutta method of order four,
below its stability bound.

Noise may be degenerate. Waves along a component without noise decay through the drift, at first as
$\exp(-k^2\tau^3/6)$ along a position whose velocity has unit noise. Densities are accurate as soon
as this factor is small at half the highest wave number.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import erfc

from ..sde.argument_checks import checked_count, real_numbers
from ..sde.sde import SDE

# Standard deviation of the window in spacings: waves up to half the highest wave number are exact
# to 1e-8.
_WINDOW = 4.0


@dataclasses.dataclass(frozen=True)
class SpectralGrid:
    """A periodic grid over a box.

    **Arguments:**

    - `low`, `high`: opposite corners of the box.
    - `points`: number of nodes along each side, odd.
    """

    low: Sequence[float]
    high: Sequence[float]
    points: int

    def __post_init__(self) -> None:
        checked_count("points", self.points, least=3)
        low, high = (np.asarray(real_numbers(n, getattr(self, n))) for n in ("low", "high"))
        if low.ndim != 1 or low.shape != high.shape or not np.all(low < high):
            raise ValueError(
                "`low` and `high` must be opposite corners of a box; got "
                f"{self.low} and {self.high}."
            )
        if self.points % 2 == 0:
            raise ValueError(
                f"`points` must be odd, so that waves come in conjugate pairs; got {self.points}."
            )

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.low)

    @property
    def volume(self) -> float:
        """Volume of the cell around a node."""
        sides = np.subtract(self.high, self.low)
        return float(np.prod(sides / self.points))

    def axes(self) -> list[np.ndarray]:
        """Return the nodes along each axis."""
        unit = np.arange(self.points) / self.points
        return [a + (b - a) * unit for a, b in zip(self.low, self.high, strict=True)]

    def nodes(self) -> np.ndarray:
        """Return all nodes, of shape `(points, ..., dim)`."""
        return np.stack(np.meshgrid(*self.axes(), indexing="ij"), axis=-1)

    def dirac(self, x0: np.ndarray) -> np.ndarray:
        """Return the Dirac measure at `x0`, filtered to the waves that the grid resolves."""
        value = np.ones(())
        for axis, nodes in enumerate(self.axes()):
            spacing = nodes[1] - nodes[0]
            u = (nodes - x0[axis]) / spacing
            window = np.exp(-0.5 * (u / _WINDOW) ** 2)
            value = np.multiply.outer(value, np.sinc(u) * window / spacing)
        return value


def transition_densities(
    sde: SDE, grid: SpectralGrid, x0: np.ndarray, times: Sequence[float]
) -> np.ndarray:
    """Solve the Fokker--Planck equation from Dirac starts, for coefficients constant in time.

    **Arguments:**

    - `sde`: the equation, in one or two dimensions.
    - `grid`: the grid.
    - `x0`: starts, one per row.
    - `times`: increasing times at which the density is several spacings wide.

    **Returns:** densities on the grid, of shape `(times, starts, points, ...)`.
    """
    with jax.enable_x64(True):
        operator = _Operator(sde, grid)
        p = jnp.asarray(np.stack([grid.dirac(start) for start in x0]))
        step = 1.5 / operator.largest_rate(p[0])
        found, now = [], 0.0
        for t in times:
            count = int(np.ceil((t - now) / step))
            p = operator.advance(p, (t - now) / count, count)
            found.append(np.asarray(p))
            now = t
    return np.stack(found)


class _Operator:
    def __init__(self, sde: SDE, grid: SpectralGrid):
        nodes = jnp.asarray(grid.nodes().reshape(-1, grid.dim))
        shape = (grid.points,) * grid.dim
        t = jnp.zeros(())
        drifts = jax.vmap(lambda x: sde.drift(t, x))
        covariance = jax.vmap(lambda x: sde.covariance(t, x))(nodes)
        # One in the inner box and zero at the faces. A drift with a jump at a face would excite all
        # waves of the grid.
        centre, half = np.add(grid.low, grid.high) / 2, np.subtract(grid.high, grid.low) / 2
        tapers = 0.5 * erfc((np.abs((np.asarray(nodes) - centre) / half) - 0.82) / 0.04)

        def periodic(i: int) -> jax.Array:
            # Towards the faces of axis i this drift tends to the mean of its values there. If it
            # tended to zero, an outward drift would accumulate mass near the faces.
            faces = [drifts(nodes.at[:, i].set(side[i]))[:, i] for side in (grid.low, grid.high)]
            mean, others = (faces[0] + faces[1]) / 2, np.delete(tapers, i, axis=1).prod(axis=1)
            return (mean + tapers[:, i] * (drifts(nodes)[:, i] - mean)) * others

        self.drift = [periodic(i).reshape(shape) for i in range(grid.dim)]
        # Degenerate noise leaves most entries zero; they are omitted.
        axes = [(i, j) for i, j in np.ndindex(grid.dim, grid.dim) if np.any(covariance[:, i, j])]
        self.covariance = {(i, j): covariance[:, i, j].reshape(shape) for i, j in axes}
        # Differentiation of a trigonometric polynomial of period two pi.
        n, j = grid.points, np.subtract.outer(np.arange(grid.points), np.arange(grid.points))
        off = 0.5 * (-1.0) ** j / np.sin(np.pi * np.where(j == 0, 0.5, j) / n)
        unit = np.where(j == 0, 0.0, off)
        self.matrices = [jnp.asarray(unit * 2 * np.pi / side) for side in 2 * half]

    def along(self, axis: int, p: jax.Array) -> jax.Array:
        return jnp.moveaxis(jnp.tensordot(self.matrices[axis], p, (1, axis)), 0, axis)

    def __call__(self, p: jax.Array) -> jax.Array:
        rate = jnp.zeros_like(p)
        for i, drift in enumerate(self.drift):
            flux = drift * p
            for (row, j), covariance in self.covariance.items():
                if row == i:
                    flux = flux - 0.5 * self.along(j, covariance * p)
            rate = rate - self.along(i, flux)
        return rate

    def largest_rate(self, p: jax.Array) -> float:
        """Estimate the spectral radius of the operator by power iteration."""
        p = p + jnp.asarray(np.random.default_rng(0).normal(size=p.shape)) * jnp.max(jnp.abs(p))
        norm = jnp.array(0.0)
        for _ in range(60):
            p = self(p / jnp.linalg.norm(p))
            norm = jnp.linalg.norm(p)
        return float(norm)

    @partial(jax.jit, static_argnums=0)
    def advance(self, p: jax.Array, step: float, count: int) -> jax.Array:
        def one(p: jax.Array) -> jax.Array:
            k1 = self(p)
            k2 = self(p + step / 2 * k1)
            k3 = self(p + step / 2 * k2)
            return p + step / 6 * (k1 + 2 * k2 + 2 * k3 + self(p + step * k3))

        return jax.vmap(lambda p: jax.lax.fori_loop(0, count, lambda _, q: one(q), p))(p)
