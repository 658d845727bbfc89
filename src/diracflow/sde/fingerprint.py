"""Values of the coefficients of an SDE, by which the SDE is recognised.

Coefficients are functions and cannot be compared. Files and checkpoints hold their values at
points drawn from the laws of a problem, at times up to the horizon. An SDE that differs only where
there is no such point has the same fingerprint. Values at several times show whether coefficients
depend on time.
"""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .conditioning import initial_condition
from .laws import AbstractLaw
from .sde import SDE

_POINTS = 64


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """Times after the start, conditioning vectors, and drift and diffusion there."""

    tau: Float[np.ndarray, " n"]
    given: Float[np.ndarray, "n d+k"]
    drift: Float[np.ndarray, "n d"]
    diffusion: Float[np.ndarray, "n d m"]

    def __post_init__(self) -> None:
        tables = (self.tau, self.given, self.drift, self.diffusion)
        if {len(table) for table in tables} != {len(self.tau)} or len(self.tau) == 0:
            raise ValueError("the tables of a fingerprint must have the same number of rows.")

    def difference(self, other: "Fingerprint", tolerance: float) -> str | None:
        """Describe the first point at which the coefficients of another SDE differ.

        `tolerance` is relative to each value; a tenth of it relative to the largest value of a
        component, and 1e-4 of it relative to the largest of all: coefficients may be small.
        """
        for name in ("drift", "diffusion"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine.shape != theirs.shape:
                return f"its `{name}` had shape {mine.shape[1:]} and has {theirs.shape[1:]}"
            close = _close(theirs, mine, tolerance)
            if not close.all():
                row = int(np.argmin(close.reshape(len(close), -1).all(axis=1)))
                return (
                    f"{self.tau[row]:g} after a start at {self.given[row].tolist()} its `{name}` "
                    f"was {mine[row].tolist()} and is now {theirs[row].tolist()}"
                )
        return None


def fingerprint(
    sde: SDE, law: AbstractLaw, start_time: float | None, horizon: float
) -> Fingerprint:
    """Compute the fingerprint of an SDE at points of its own, drawn from `law`."""
    with jax.enable_x64(True):
        draws = law.sample(jr.key(1), (_POINTS,))
        tau = jnp.linspace(0, horizon, _POINTS)
    return fingerprint_at(sde, start_time, np.asarray(tau), np.asarray(draws))


def fingerprint_at(
    sde: SDE,
    start_time: float | None,
    tau: Float[np.ndarray, " n"],
    g: Float[np.ndarray, "n d+k"],
) -> Fingerprint:
    """Compute the fingerprint of an SDE at known points."""
    with jax.enable_x64(True):
        values = coefficients(sde, start_time, jnp.asarray(tau), jnp.asarray(g))
        return Fingerprint(tau, g, *(np.asarray(value, np.float64) for value in values))


def coefficients(
    sde: SDE, start_time: float | None, tau: Float[Array, " n"], g: Float[Array, "n d+k"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d m"]]:
    """Return drift and diffusion at the times `tau` after the start, for conditioning vectors."""

    def at(tau: Float[Array, ""], g: Float[Array, " d+k"]) -> tuple[Array, Array]:
        member, x, s = initial_condition(sde, start_time, g)
        return member.drift(s + tau, x), member.diffusion(s + tau, x)

    drift, diffusion = jax.vmap(at)(tau, g)
    return np.asarray(drift), np.asarray(diffusion)


def _close(values: np.ndarray, stored: np.ndarray, tolerance: float) -> np.ndarray:
    """Return for each entry whether it agrees; entries without a value must be the same."""
    size = np.abs(np.where(np.isfinite(stored), stored, 0.0))
    scale = 0.1 * size.max(axis=0) + 1e-4 * size.max()
    with np.errstate(invalid="ignore"):
        near = np.abs(values - stored) <= tolerance * (np.abs(stored) + scale)
    same = (values == stored) | (np.isnan(values) & np.isnan(stored))
    return np.where(np.isfinite(values) & np.isfinite(stored), near, same)


# Fractions of the time span at which coefficients are compared. Multiples of the golden ratio are
# far from simple fractions, so that periodic coefficients are detected.
_SHARES = (*np.modf(np.arange(1, 8) * (np.sqrt(5) - 1) / 2)[0].tolist(), 1.0)


def first_change(
    sde: SDE, start: float, span: float, g: Float[Array, "n d+k"]
) -> tuple[str, float] | None:
    """Return the name of a coefficient that changes with time, and a time at which it has changed.

    Return `None` if neither coefficient changes.
    """

    def at(share: float) -> tuple[np.ndarray, np.ndarray]:
        return coefficients(sde, start, jnp.full(len(g), share * span, g.dtype), g)

    before = at(0.0)
    for share in _SHARES:
        for name, first, values in zip(("drift", "diffusion"), before, at(share), strict=True):
            # Coefficients that do not depend on time agree bit for bit.
            if not np.array_equal(values, first, equal_nan=True):
                return name, start + share * span
    return None
