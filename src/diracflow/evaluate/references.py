r"""References: marginal densities, those of Heston's model in closed form, and the Kalman filter.

**Marginal densities** in two dimensions. The other component is integrated out by a trapezoidal sum
over an even grid, in unconstrained coordinates. For smooth densities that vanish at both ends it
converges faster than any power of the spacing.

**Heston's model.** Its characteristic function is inverted. For
$dX = (\mu - V/2)\,dt + \sqrt V\,dW_1$, $dV = \kappa(\theta - V)\,dt + \sigma\sqrt V\,dW_2$ with
$dW_1dW_2 = \rho\,dt$ the characteristic function of $X(t) - x_0$ is
$\exp(iu\mu t + C(u) + D(u)v_0)$, where $D' = \alpha - \beta D + \tfrac12\sigma^2D^2$ and
$C' = \kappa\theta D$ with $\alpha = -\tfrac12(u^2 + iu)$ and $\beta = \kappa - i\rho\sigma u$. With
$d = \sqrt{\beta^2 - 2\alpha\sigma^2}$ of positive real part,
$$D = \frac{2\alpha}{\beta + d}\,\frac{1 - e^{-dt}}{1 - ge^{-dt}},\qquad
  C = \kappa\theta\Big(\frac{2\alpha t}{\beta + d}
      - \frac2{\sigma^2}\log\frac{1 - ge^{-dt}}{1 - g}\Big),\qquad
  g = \frac{2\alpha\sigma^2}{(\beta + d)^2}.$$
Decaying exponentials keep the logarithm on its principal branch (the "little trap" form of
Albrecher et al. 2007). Writing $\beta - d$ as a quotient avoids cancellation for small $\sigma$.
The variance alone is a CIR process.

**Kalman filter and smoother** (Rauch--Tung--Striebel): exact laws of hidden linear SDEs, references
for the particle filter and its smoother. Observations are $y = Hx + \varepsilon$ with Gaussian
$\varepsilon$ of covariance $R$.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float
from scipy.special import expm1, log1p  # NumPy's lose digits near zero for complex numbers
from scipy.stats import multivariate_normal

from ..models.exact_densities import ExactLinear
from ..models.square_root import ExactCIR
from ..sde.domains import AbstractDomain, Real
from ..sde.laws import Normal
from ..transition.transition_density import AbstractTransitionDensity
from .errors import wide_range

# Number of draws that locate the mass.
_DRAWS = 1024
# The transform decays exponentially; it is truncated below this value.
_NEGLIGIBLE = 1e-15
# Half of the period of the inverse transform extends beyond the query points by this number of
# standard deviations: tails are exponential, not Gaussian.
_MARGIN = 30.0


class Marginal(NamedTuple):
    """The density of one component at points, with quadrature weights."""

    x: Float[np.ndarray, " n"]
    prob: Float[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]

    def squared_l2(self, exact: Float[np.ndarray, " n"]) -> float:
        """Return the relative squared $L^2$ distance to a density with the values `exact`."""
        difference = self.weights @ (self.prob - exact) ** 2
        return float(difference / (self.weights @ exact**2))


def marginals(
    density: AbstractTransitionDensity,
    t: float,
    x0: Float[ArrayLike, " 2"],
    *,
    grid: int = 193,
) -> tuple[Marginal, Marginal]:
    """Return the marginal densities of both components of a two-dimensional state.

    **Arguments:**

    - `density`: a transition density in two dimensions, without parameters.
    - `t`, `x0`: one time and one start.
    - `grid`: number of points along each axis.
    """
    if density.dim != 2:
        raise ValueError(f"`density` must have two components; it has {density.dim}.")
    chart = getattr(density, "chart", None)
    maps = (Real(), Real()) if chart is None else chart.maps
    draws = np.asarray(density.sample(jr.key(0), t, x0, (_DRAWS,)))
    (x1, w1), (x2, w2) = (_axis(*column, grid) for column in zip(maps, draws.T, strict=True))
    points = jnp.stack(jnp.meshgrid(x1, x2, indexing="ij"), axis=-1)
    joint = np.asarray(density.prob(points, t, x0))
    return Marginal(x1, joint @ w2, w1), Marginal(x2, w1 @ joint, w2)


def _axis(part: AbstractDomain, draws: np.ndarray, grid: int) -> tuple[np.ndarray, np.ndarray]:
    """Return states that are evenly spaced in unconstrained coordinates, with their weights."""
    y = np.asarray(part.to_real(jnp.asarray(draws)))
    coordinates, step = np.linspace(*wide_range(y), grid, retstep=True)
    x: Array = part.from_real(jnp.asarray(coordinates))
    return np.asarray(x), step * np.exp(-np.asarray(part.log_slope(x)))


@dataclasses.dataclass(frozen=True)
class HestonMarginals:
    """Marginal laws of the log-price and of the variance.

    The arguments are those of `diracflow.models.heston`.

    >>> law = HestonMarginals(rate=2.0, level=0.09, noise=0.3, correlation=-0.6)
    >>> law.log_price([-0.1, 0.0, 0.1], 0.5, [0.0, 0.09]).shape
    (3,)
    """

    rate: float = 2.0
    level: float = 0.09
    noise: float = 0.3
    correlation: float = -0.6
    drift: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rate", "level", "noise"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` must be positive; got {value}.")
        if not abs(self.correlation) < 1:
            raise ValueError(
                f"`correlation` must lie between -1 and 1, or the density may not be smooth; "
                f"got {self.correlation}."
            )

    def mean(self, t: float, x0: Float[ArrayLike, " 2"]) -> float:
        """Return the mean of the log-price at time `t` from `x0 = (log-price, variance)`."""
        start, v0 = _checked_start(t, x0)
        return float(start + self.drift * t - self.integrated_variance(t, v0) / 2)

    def integrated_variance(self, t: float, v0: float) -> float:
        """Return the mean of the variance integrated up to time `t`, from the variance `v0`."""
        return self.level * t - (v0 - self.level) * float(np.expm1(-self.rate * t)) / self.rate

    def characteristic(self, u: ArrayLike, t: float, x0: Float[ArrayLike, " 2"]) -> np.ndarray:
        r"""Return $E e^{iuX(t)}$ for real or complex $u$ at which it exists."""
        start, v0 = _checked_start(t, x0)
        u = np.asarray(u, dtype=np.complex128)
        alpha, beta = -(u**2 + 1j * u) / 2, self.rate - 1j * self.correlation * self.noise * u
        d = np.sqrt(beta**2 - 2 * alpha * self.noise**2)
        limit, g = 2 * alpha / (beta + d), 2 * alpha * (self.noise / (beta + d)) ** 2
        decayed = -expm1(-d * t)
        big_d = limit * decayed / (1 - g + g * decayed)
        log_ratio = log1p(g * decayed / (1 - g))
        big_c = self.rate * self.level * (limit * t - 2 * log_ratio / self.noise**2)
        return np.exp(1j * u * (start + self.drift * t) + big_c + big_d * v0)

    def log_price(
        self, x: Float[ArrayLike, " n"], t: float, x0: Float[ArrayLike, " 2"]
    ) -> Float[np.ndarray, " n"]:
        """Return the density of the log-price at `x`, at time `t` from `x0`."""
        points = np.asarray(x, dtype=np.float64)
        _, v0 = _checked_start(t, x0)
        from_mean = points - self.mean(t, x0)
        # The trapezoidal sum inverts the transform of the periodised density, of period 2 pi / h.
        deviation = np.sqrt(self.integrated_variance(t, v0))
        h = np.pi / (np.max(np.abs(from_mean), initial=0.0) + _MARGIN * deviation)
        cut = 1 / deviation
        while abs(self.characteristic(cut, t, x0)) > _NEGLIGIBLE:
            cut *= 1.5
        u = h * np.arange(1, int(np.ceil(cut / h)) + 1)
        transform = self.characteristic(u, t, x0) * np.exp(-1j * u * self.mean(t, x0))
        waves = np.exp(-1j * np.multiply.outer(from_mean, u)) @ transform
        return h / np.pi * (0.5 + waves.real)

    def variance(
        self, v: Float[ArrayLike, " n"], t: float, x0: Float[ArrayLike, " 2"]
    ) -> Float[np.ndarray, " n"]:
        """Return the density of the variance at `v`, at time `t` from `x0`."""
        _, v0 = _checked_start(t, x0)
        params = {"rate": self.rate, "level": self.level, "noise": self.noise}
        with jax.enable_x64(True):
            points = np.asarray(v, dtype=np.float64)[..., None]
            return np.asarray(ExactCIR().prob(points, t, np.array([v0]), params))


def _checked_start(t: float, x0: ArrayLike) -> tuple[float, float]:
    start = np.asarray(x0, dtype=np.float64)
    if start.shape != (2,) or not (np.all(np.isfinite(start)) and start[1] > 0):
        raise ValueError(f"`x0` must be a log-price and a positive variance; got {x0}.")
    if not (np.isfinite(t) and t > 0):
        raise ValueError(f"`t` must be a positive number; got {t}.")
    return float(start[0]), float(start[1])


@dataclasses.dataclass(frozen=True)
class Kalman:
    """Gaussian laws of the state: given observations up to each time, or all, if smoothed."""

    log_evidence: float
    means: Float[np.ndarray, "n d"]
    covariances: Float[np.ndarray, "n d d"]


def kalman_filter(
    density: ExactLinear,
    times: Float[ArrayLike, " n"],
    observations: Float[ArrayLike, "n k"],
    matrix: Float[ArrayLike, "k d"],
    noise: Float[ArrayLike, "k k"],
    initial: Normal,
    start: float = 0.0,
) -> Kalman:
    """Filter linear observations of a linear SDE exactly.

    **Arguments:**

    - `density`: the exact transition density of a linear SDE.
    - `times`: increasing times of the observations.
    - `observations`: one row for each time; a row of NaN is missing.
    - `matrix`, `noise`: $H$ and the covariance $R$ of the observation error.
    - `initial`: the Gaussian law of the state at time `start`.
    - `start`: time at which `initial` holds.
    """
    law, h = initial.expand(density.dim), np.asarray(matrix)
    factor = law.factor if law.factor.ndim == 2 else np.diag(law.factor)
    mean, covariance = law.mean, factor @ factor.T
    log_evidence, means, covariances = 0.0, [], []
    gaps = np.diff(np.asarray(times, dtype=float), prepend=start)
    for gap, y in zip(gaps, np.asarray(observations, dtype=float), strict=True):
        if gap > 0:
            mean, covariance, _ = _predicted(density, gap, mean, covariance)
        if not np.isnan(y).all():
            spread = h @ covariance @ h.T + np.asarray(noise)
            gain = np.linalg.solve(spread, h @ covariance).T
            log_evidence += float(multivariate_normal.logpdf(y, h @ mean, spread))
            mean, covariance = mean + gain @ (y - h @ mean), covariance - gain @ h @ covariance
        means.append(mean)
        covariances.append(covariance)
    return Kalman(log_evidence, np.stack(means), np.stack(covariances))


def kalman_smoother(
    density: ExactLinear,
    times: Float[ArrayLike, " n"],
    observations: Float[ArrayLike, "n k"],
    matrix: Float[ArrayLike, "k d"],
    noise: Float[ArrayLike, "k k"],
    initial: Normal,
    start: float = 0.0,
) -> Kalman:
    """Return the laws of a linear SDE given all linear observations, by backward recursion.

    Arguments are those of `kalman_filter`.
    """
    found = kalman_filter(density, times, observations, matrix, noise, initial, start)
    gaps = np.diff(np.asarray(times, dtype=float))
    means, covariances = [found.means[-1]], [found.covariances[-1]]
    forward = zip(gaps, found.means[:-1], found.covariances[:-1], strict=True)
    for gap, mean, covariance in reversed(list(forward)):
        ahead, spread, decay = _predicted(density, gap, mean, covariance)
        gain = np.linalg.solve(spread, decay @ covariance).T
        means.append(mean + gain @ (means[-1] - ahead))
        covariances.append(covariance + gain @ (covariances[-1] - spread) @ gain.T)
    return Kalman(found.log_evidence, np.stack(means[::-1]), np.stack(covariances[::-1]))


def _predicted(
    density: ExactLinear, gap: float, mean: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean and covariance after a gap, and the derivative of the mean in the state."""
    change, factor = map(np.asarray, density._at_time(jnp.asarray(gap)))
    decay, level = np.eye(len(change)) + change, density.level
    return level + decay @ (mean - level), decay @ covariance @ decay.T + factor @ factor.T, decay
