"""Checks of the arguments of methods of laws."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import checked_count, checked_key, real_numbers
from .weighted_points import WeightedPoints


def function_values(
    f: Callable[[Array], Array], x: Float[Array, "*n d"], shape: tuple[int, ...]
) -> Float[Array, "*n"]:
    """Return the values of a function of one state, which users know as having the given `shape`.

    Raise an error unless they are real numbers.
    """
    _require_existing_components(f, shape)
    try:
        values = jax.vmap(f)(x.reshape(-1, x.shape[-1]))
        values = values.reshape(*x.shape[:-1], *values.shape[1:])
    except Exception as error:
        raise ValueError(
            f"`f` must be a function of one state of shape {shape}, written with `jax.numpy`; it "
            f"could not be traced ({type(error).__name__}: {error}). Index components as `x[0]`, "
            "not `x[:, 0]`."
        ) from error
    if values.dtype.kind not in "fiub":
        raise ValueError(f"`f` must return real numbers; got dtype {values.dtype}.")
    return values


def _require_existing_components(f: Callable[[Array], Array], shape: tuple[int, ...]) -> None:
    """Raise if `f` reads a component that does not exist, for which JAX returns another one."""
    state: Any = np.zeros(shape or (1,))  # NumPy checks indices
    try:
        f(state)
    except IndexError as error:
        raise ValueError(
            f"`f` must be a function of one state of shape {shape}; {error}. Components are "
            "counted from 0: index them as `x[0]`, not `x[:, 0]`."
        ) from error
    except Exception:
        return  # a function of JAX arrays alone, or one that fails when it is traced


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a method of a law, after checking their names."""
    unknown = set(options) - {"points", "key"}
    if unknown:
        raise ValueError(f"Options are `points` and `key`; got {', '.join(sorted(unknown))}.")
    return options


def checked_points(points: Any, key: Any) -> int:
    """Return the number of points, after checking it and the key."""
    if not isinstance(key, jax.core.Tracer):  # which has an error of its own
        checked_key(key)
    return checked_count("points", points)


def random_key(random_state: Any) -> PRNGKeyArray:
    """Return the key of a seed or of the next number of a NumPy generator."""
    try:
        generator = np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            "`random_state` must be a whole number that is not negative, a NumPy generator or "
            f"None; got {random_state!r}."
        ) from None
    return jr.key(generator.integers(2**32, dtype=np.uint32))


def checked_levels(name: str, q: ArrayLike, batch: tuple[int, ...] = ()) -> Float[Array, "*batch"]:
    """Return probabilities; known ones must lie strictly between 0 and 1."""
    levels = real_numbers(name, q)
    try:
        np.broadcast_shapes(levels.shape, batch)
    except ValueError:
        raise ValueError(
            f"`{name}` must broadcast against the shape {batch} of the batch of laws; got "
            f"{levels.shape}. Use `{name}[:, None]` for several levels of each law."
        ) from None
    if not isinstance(levels, jax.core.Tracer):
        known = np.asarray(levels)
        bad = ~((known > 0) & (known < 1))
        if np.any(bad):
            raise ValueError(
                f"`{name}` must lie strictly between 0 and 1; got {known[bad].ravel()[0]:g}. "
                "Percentages are divided by 100."
            )
    return jnp.asarray(levels)


def require_numbers(value: Array, points: WeightedPoints, values: Array) -> None:
    """Raise if a known expectation is not finite, and name a state at which `f` is not."""
    if isinstance(value, jax.core.Tracer) or bool(jnp.all(jnp.isfinite(value))):
        return
    flat = np.asarray(values).reshape(int(np.prod(points.x.shape[:-1])), -1)
    bad = ~np.isfinite(flat)
    row = int(np.argmax(bad.any(axis=1)))
    where = np.asarray(points.x).reshape(len(flat), -1)[row].tolist()
    found = "NaN" if np.isnan(flat[row]).any() else "an infinite value"
    raise ValueError(
        f"`f` returned {found} at the state {where}. It must be finite in the whole domain; use "
        "`jnp.where` with a harmless argument on the other branch."
    )
