"""Parameters of the SDE in a query.

A density with parameters sees them behind the start, as one vector: both stand for what is given
when the process begins. Whatever maps a query over starts then maps it over parameters too.
"""

from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .arguments import real_numbers

Params = Mapping[str, ArrayLike]
Bounds = Mapping[str, tuple[float, float]]


def joined(
    x0: Float[Array, "*batch d"], params: Params | None, names: tuple[str, ...], bounds: Bounds
) -> Float[Array, "*batch d+k"]:
    """Starts with the parameters, in the order of `names`, behind their components."""
    given = {} if params is None else params
    check_names(names, given)
    if not names:
        return x0
    values = [checked_param(name, given[name], bounds) for name in names]
    batch = np.broadcast_shapes(x0.shape[:-1], *(value.shape for value in values))
    columns = [jnp.broadcast_to(value, batch)[..., None] for value in values]
    return jnp.concatenate([jnp.broadcast_to(x0, (*batch, x0.shape[-1])), *columns], axis=-1)


def check_names(names: tuple[str, ...], given: object) -> None:
    """Raise unless `given` is a mapping with exactly these names."""
    if not isinstance(given, Mapping):
        raise ValueError(
            f"`params` must map names to numbers, as in `{_example(names)}`; "
            f"got {type(given).__name__}."
        )
    if given and not names:
        raise ValueError(f"This density has no parameters; got `params` for {_listed(given)}.")
    unknown, missing = set(given) - set(names), [name for name in names if name not in given]
    if unknown:
        raise ValueError(
            f"This density has the parameters {_listed(names)}; it knows no {_listed(unknown)}."
        )
    if missing:
        raise ValueError(
            f"This density depends on the parameters {_listed(names)}; {_listed(missing)} "
            f"missing. Give all of them, as in `params={_example(names)}`."
        )


def checked_param(name: str, value: ArrayLike, bounds: Bounds) -> Array:
    """Values of one parameter: finite and within the bounds, where they are known."""
    values = real_numbers(name, value)
    # Under `jit` a sampler or optimiser keeps to the bounds by its own change of variables.
    if isinstance(values, jax.core.Tracer):
        return values
    array, (low, high) = np.asarray(values), bounds.get(name, (-np.inf, np.inf))
    _require(name, array, np.isfinite(array), "be finite")
    # A scale may be any positive number, but not zero; other bounds are attained.
    above = array > low if low == 0 else array >= low
    _require(name, array, above & (array <= high), f"lie in {_interval(low, high)}")
    return values


def _require(name: str, array: np.ndarray, good: np.ndarray, what: str) -> None:
    if not np.all(good):
        raise ValueError(
            f"The parameter `{name}` must {what}, where this density is known; "
            f"got {array[~good].ravel()[0]:g}."
        )


def _interval(low: float, high: float) -> str:
    return f"{'(' if low in (0, -np.inf) else '['}{low:g}, {high:g}{')' if high == np.inf else ']'}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(map(str, names)))


def _example(names: tuple[str, ...]) -> str:
    return "{" + ", ".join(f'"{name}": ...' for name in names) + "}"
