"""Parameters of the SDE and start times in queries.

A density takes the start, the parameters and, if it varies, the start time as one conditioning
vector. Queries that are mapped over starts are thereby mapped over all of them.
"""

from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .argument_checks import checked_batch, real_numbers

Params = Mapping[str, ArrayLike]
Bounds = Mapping[str, tuple[float, float]]


def checked_params(params: Params | None, names: tuple[str, ...], bounds: Bounds) -> list[Array]:
    """Return the checked values of the parameters, in the order of `names`."""
    values = {} if params is None else params
    check_names(names, values)
    return [checked_param(name, values[name], bounds) for name in names]


def checked_start_time(
    start_time: ArrayLike | None, fixed: float | None, interval: tuple[float, float]
) -> list[Array]:
    """Return a list with the checked start time if it varies; an empty list if it is `fixed`."""
    if fixed is None:
        if start_time is None:
            raise ValueError(
                "This density depends on the time at which the process starts; pass it as "
                "`start_time=...`."
            )
        return [checked_param("start_time", start_time, {"start_time": interval}, "time")]
    if start_time is not None:
        values = real_numbers("start_time", start_time)
        if isinstance(values, jax.core.Tracer) or np.any(np.asarray(values) != fixed):
            raise ValueError(
                f"This density holds only for starts at time {fixed:g}; got another `start_time`. "
                "Learn it over a law of start times, `start_time=diracflow.Uniform(...)`."
            )
    return []


def joined(x0: Float[Array, "*batch d"], values: dict[str, Array]) -> Float[Array, "*batch d+k"]:
    """Return conditioning vectors: `x0` followed by `values`, broadcast against each other."""
    if not values:
        return x0
    shapes = {name: value.shape for name, value in values.items()}
    batch = checked_batch(**({"x0": x0.shape[:-1]} | shapes))
    columns = [jnp.broadcast_to(value, batch)[..., None] for value in values.values()]
    return jnp.concatenate([jnp.broadcast_to(x0, (*batch, x0.shape[-1])), *columns], axis=-1)


def check_names(names: tuple[str, ...], params: object, what: str = "density") -> None:
    """Raise unless `params` is a mapping with exactly these names."""
    if not isinstance(params, Mapping):
        raise ValueError(
            f"`params` must map names to numbers, as in `{_example(names)}`; "
            f"got {type(params).__name__}."
        )
    if params and not names:
        raise ValueError(f"This {what} has no parameters; got `params` for {_listed(params)}.")
    unknown, missing = set(params) - set(names), [name for name in names if name not in params]
    if unknown:
        raise ValueError(
            f"This {what} has the parameters {_listed(names)}; it has no {_listed(unknown)}."
        )
    if missing:
        raise ValueError(
            f"This {what} depends on the parameters {_listed(names)}; {_listed(missing)} "
            f"missing. Pass all of them, as in `params={_example(names)}`."
        )


def checked_param(name: str, value: ArrayLike, bounds: Bounds, what: str = "parameter") -> Array:
    """Return the values of one parameter; concrete values must be finite and within `bounds`."""
    values = real_numbers(name, value)
    # Under `jit`, samplers and optimisers enforce bounds by a change of variables.
    if isinstance(values, jax.core.Tracer):
        return values
    array, (low, high) = np.asarray(values), bounds.get(name, (-np.inf, np.inf))
    scale = low == 0 and high == np.inf  # a scale parameter must not be zero
    inside = (array > low if scale else array >= low) & (array <= high)
    left = "(" if low == -np.inf or scale else "["
    interval = f"{left}{low:g}, {high:g}{')' if high == np.inf else ']'}"
    for good, expected in ((np.isfinite(array), "be finite"), (inside, f"lie in {interval}")):
        if not np.all(good):
            raise ValueError(
                f"The {what} `{name}` must {expected} for this density; got "
                f"{array[~good].ravel()[0]:g}."
            )
    return values


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(map(str, names)))


def _example(names: tuple[str, ...]) -> str:
    return "{" + ", ".join(f'"{name}": ...' for name in names) + "}"
