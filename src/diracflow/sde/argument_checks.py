"""Checks of the arguments of queries, made before any computation."""

import math
import numbers
import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, PRNGKeyArray

# Its types do not list the options.
_config: Any = jax.config
# Sizes of arrays for which Python is faster than NumPy.
_SMALL = 8


def checked_time(t: ArrayLike, horizon: float, why: Callable[[], str]) -> Array:
    """Return times after the start, up to the horizon; `why()` ends the error about later ones."""
    values = real_numbers("t", t)
    # The horizon itself must pass, even if float32 has rounded it upwards.
    latest = horizon * (1 + 1e-6)
    if isinstance(values, jax.core.Tracer):
        bad = ~((values > 0) & (values <= latest) & (values < jnp.inf))
        return eqx.error_if(_at_most(values, horizon), bad, f"{_range(horizon)}.{why()}")
    # In NumPy: under `jit` JAX would trace even comparisons of known values.
    known = np.asarray(values)
    if known.size == 0 or (known.size == 1 and 0 < known.item() <= horizon < np.inf):
        return values
    if known.min() > 0 and known.max() <= horizon < np.inf:  # False for NaN
        return values
    outside = ~((known > 0) & (known <= latest) & (known < np.inf))
    if np.any(outside):
        first = known[outside].ravel()[0]
        hint = " At t = 0 the law is the point mass at `x0`." if first == 0 else why()
        raise ValueError(f"{_range(horizon)}; got {first:g}.{hint}")
    return values if known.max() <= horizon else _at_most(values, horizon)


def _range(horizon: float) -> str:
    end = f"{horizon:g}]" if np.isfinite(horizon) else "inf)"
    return f"`t` must lie in (0, {end}, the time since the start"


def _at_most(values: Array, bound: float) -> Array:
    # `jnp.minimum` would halve the derivative where both are equal.
    return jnp.where(values > bound, bound, values)


def checked_point(name: str, value: ArrayLike, dim: int, finite: bool = False) -> Array:
    """Return states along the last axis, after checking shape, NaN and, if `finite`, infinities."""
    values = real_numbers(name, value)
    if values.ndim == 0 or values.shape[-1] != dim:
        hint = " Write `x[..., None]` for an array of one-dimensional states." if dim == 1 else ""
        raise ValueError(
            f"The last axis of `{name}` must be the state, of length {dim}; got shape "
            f"{values.shape}.{hint}"
        )
    if not isinstance(values, jax.core.Tracer):
        known = np.asarray(values)
        few = known.size <= _SMALL
        if not (all(map(math.isfinite, known.flat)) if few else np.isfinite(known).all()):
            if np.any(np.isnan(known)):
                raise ValueError(f"`{name}` contains NaN.")
            if finite or name == "x0":
                raise ValueError(f"`{name}` must be finite.")
    return values


def checked_one_point(name: str, value: ArrayLike, dim: int) -> Array:
    """Return one finite state, after checking it."""
    values = checked_point(name, value, dim, finite=True)
    if values.ndim != 1:
        raise ValueError(f"`{name}` must be one point of shape ({dim},); got {values.shape}.")
    return values


def checked_batch(**shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which the leading axes of the named arguments broadcast."""
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        shown = ", ".join(f"`{name}` {shape}" for name, shape in shapes.items())
        raise ValueError(
            "Leading axes, all but that of the state, must broadcast against each other as in "
            f"NumPy; got {shown}. Insert axes of length one to combine them."
        ) from None


def checked_key(key: Any, name: str = "key") -> PRNGKeyArray:
    """Return one random key, also from a seed or from the two numbers of a key."""
    if isinstance(key, numbers.Integral) and not isinstance(key, bool):
        return jr.key(operator.index(key))
    found = jnp.asarray(key) if isinstance(key, np.ndarray) else key
    try:
        data = not jax.dtypes.issubdtype(found.dtype, jax.dtypes.prng_key)
        found = jr.wrap_key_data(found) if data else found
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"`{name}` must be a seed or come from `jax.random.key(seed)`; got {_brief(key)}."
        ) from None
    if found.shape:
        raise ValueError(
            f"`{name}` must be one key; got keys of shape {found.shape}. Select one, `keys[0]`, or "
            "map over them with `jax.vmap`."
        )
    return found


def checked_count(name: str, value: Any, least: int = 1) -> int:
    """Return `value` as an integer, after checking that it is one and at least `least`."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < least:
        what = "a whole number" if not whole else f"at least {least}"
        raise ValueError(f"`{name}` must be {what}; got {_brief(value)}.")
    return int(value)


def checked_number(name: str, value: Any) -> float:
    """Return `value` as a float, after checking that it is one finite number."""
    try:
        number = np.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must be one finite number; got {_brief(value)}.")
    return number


def checked_flag(name: str, value: Any) -> bool:
    """Return `value` as a `bool`, after checking that it is one."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"`{name}` must be True or False; got {_brief(value)}.")
    return bool(value)


def _brief(value: Any) -> str:
    """Return a short representation of a value for an error message."""
    if isinstance(value, str | numbers.Number | None):
        return repr(value)
    if isinstance(value, jax.Array | np.ndarray) and value.ndim:
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return `shape` as a tuple; one number is accepted as well."""
    try:
        sizes = (
            (operator.index(shape),) if np.ndim(shape) == 0 else tuple(map(operator.index, shape))
        )
    except (TypeError, ValueError):
        raise ValueError(f"`shape` must hold whole numbers; got {shape!r}.") from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"`shape` must not be negative; got {shape!r}.")
    return sizes


def real_numbers(name: str, value: Any) -> Array:
    """Return `value` as an array of JAX's default float type."""
    if isinstance(value, str | bytes):
        raise ValueError(f"`{name}` must be an array of real numbers; got {value!r}.")
    dtype = np.float64 if _config.jax_enable_x64 else np.float32
    if not isinstance(value, jax.Array):
        # NumPy arrays cost a query less than JAX's.
        try:
            known = np.asarray(value)
        except (TypeError, ValueError):  # also a sequence of traced numbers
            known = None
        if known is not None and known.dtype.kind in "mM":
            raise ValueError(
                f"`{name}` must be an array of real numbers; got dates, whose unit of time is not "
                'stated. Use `times, states = diracflow.observed(frame, unit="day")`.'
            )
        if known is not None and known.dtype.kind in "fiu":
            numbers_of: Any = known.astype(dtype, copy=False)
            return numbers_of
    elif value.dtype == dtype:
        return value
    try:
        # Concrete values stay concrete under `jit`, so that they can be checked at once.
        with jax.ensure_compile_time_eval():
            array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        sentence = str(error).split(". ")[0].split("\n")[0].rstrip(".")  # the first one
        raise ValueError(
            f"`{name}` must be an array of real numbers; got {_brief(value)} ({sentence})."
        ) from error
    if jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer):
        return array.astype(dtype)
    raise ValueError(f"`{name}` must be an array of real numbers; got dtype {array.dtype}.")
