"""Whether the arguments of a query make sense, said before anything is computed with them."""

import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike


def checked_time(t: ArrayLike, horizon: float, why: str) -> Array:
    """Times after the start, up to the horizon; `why` is said of times beyond it."""
    values = real_numbers("t", t)
    # A time asked for as the horizon itself must pass when float32 has rounded it upwards.
    latest = horizon * (1 + 1e-6)
    message = f"`t` must lie in (0, {horizon:g}], the time since the start"
    if isinstance(values, jax.core.Tracer):
        bad = ~((values > 0) & (values <= latest))
        return eqx.error_if(_at_most(values, horizon), bad, f"{message}.{why}")
    # In NumPy: under `jit` JAX would trace even comparisons of known values.
    known = np.asarray(values)
    outside = ~((known > 0) & (known <= latest))
    if np.any(outside):
        first = known[outside].ravel()[0]
        hint = " At t = 0 the law is the point mass at `x0`." if first == 0 else why
        raise ValueError(f"{message}; got {first:g}.{hint}")
    return values if known.size and known.max() <= horizon else _at_most(values, horizon)


def _at_most(values: Array, bound: float) -> Array:
    # `minimum` would halve the derivative where the two are equal.
    return jnp.where(values > bound, bound, values)


def checked_point(name: str, value: ArrayLike, dim: int) -> Array:
    """States along the last axis, without NaN."""
    values = real_numbers(name, value)
    if values.ndim == 0 or values.shape[-1] != dim:
        hint = " Write `x[..., None]` for an array of one-dimensional states." if dim == 1 else ""
        raise ValueError(
            f"The last axis of `{name}` must be the state, of length {dim}; got shape "
            f"{values.shape}.{hint}"
        )
    if not isinstance(values, jax.core.Tracer):
        if np.any(np.isnan(values)):
            raise ValueError(f"`{name}` contains NaN.")
        if name == "x0" and np.any(np.isinf(values)):
            raise ValueError("`x0` must be finite.")
    return values


def checked_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple, also when it is one number."""
    try:
        sizes = (
            (operator.index(shape),) if np.ndim(shape) == 0 else tuple(map(operator.index, shape))
        )
    except TypeError:
        raise ValueError(f"`shape` must hold whole numbers; got {shape!r}.") from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"`shape` must not be negative; got {shape!r}.")
    return sizes


def real_numbers(name: str, value: ArrayLike) -> Array:
    """The value as an array of JAX's current float."""
    if isinstance(value, str | bytes):
        raise ValueError(f"`{name}` must be an array of real numbers; got {value!r}.")
    if not isinstance(value, jax.Array):
        known = _known_numbers(value)
        if known is not None:
            return known
    try:
        # Numbers that are known stay so within the user's `jit`, and can be checked there and then.
        with jax.ensure_compile_time_eval():
            array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must be an array of real numbers; {error}") from error
    if jnp.issubdtype(array.dtype, jnp.floating):
        return array.astype(jnp.result_type(float))
    if jnp.issubdtype(array.dtype, jnp.integer):
        return array.astype(jnp.result_type(float))
    raise ValueError(f"`{name}` must be an array of real numbers; got dtype {array.dtype}.")


def _known_numbers(value: ArrayLike) -> Any:
    """Numbers of the user's as a NumPy array, which costs a query less than one of JAX's."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # also a sequence of numbers that are being traced
        return None
    return array.astype(jnp.result_type(float), copy=False) if array.dtype.kind in "fiu" else None
