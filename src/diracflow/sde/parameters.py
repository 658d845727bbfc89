"""Parameters of the SDE, and times of the start, in a query.

A density with parameters sees them behind the start, as one vector, and behind them the time of the
start where that varies: all stand for what is given when the process begins. Whatever maps a query
over starts then maps it over the others too.
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
    """Values of the parameters, in the order of `names`."""
    given = {} if params is None else params
    check_names(names, given)
    return [checked_param(name, given[name], bounds) for name in names]


def checked_start_time(
    start_time: ArrayLike | None, fixed: float | None, interval: tuple[float, float]
) -> list[Array]:
    """The time of the start, as one value where it varies; none where it is `fixed`."""
    if fixed is None:
        if start_time is None:
            raise ValueError(
                "This density depends on the time at which the process starts; give it: "
                "`start_time=...`."
            )
        return [checked_param("start_time", start_time, {"start_time": interval}, "time")]
    if start_time is not None:
        values = real_numbers("start_time", start_time)
        if isinstance(values, jax.core.Tracer) or np.any(np.asarray(values) != fixed):
            raise ValueError(
                f"This density holds for starts at time {fixed:g} alone; got another `start_time`. "
                "Learn it over a law of start times, `start_time=diracflow.Uniform(...)`."
            )
    return []


def joined(x0: Float[Array, "*batch d"], values: dict[str, Array]) -> Float[Array, "*batch d+k"]:
    """Starts with further values behind their components; names are for messages."""
    if not values:
        return x0
    shapes = {name: value.shape for name, value in values.items()}
    batch = checked_batch(**({"x0": x0.shape[:-1]} | shapes))
    columns = [jnp.broadcast_to(value, batch)[..., None] for value in values.values()]
    return jnp.concatenate([jnp.broadcast_to(x0, (*batch, x0.shape[-1])), *columns], axis=-1)


def check_names(names: tuple[str, ...], given: object, what: str = "density") -> None:
    """Raise unless `given` is a mapping with exactly these names; `what` has them."""
    if not isinstance(given, Mapping):
        raise ValueError(
            f"`params` must map names to numbers, as in `{_example(names)}`; "
            f"got {type(given).__name__}."
        )
    if given and not names:
        raise ValueError(f"This {what} has no parameters; got `params` for {_listed(given)}.")
    unknown, missing = set(given) - set(names), [name for name in names if name not in given]
    if unknown:
        raise ValueError(
            f"This {what} has the parameters {_listed(names)}; it knows no {_listed(unknown)}."
        )
    if missing:
        raise ValueError(
            f"This {what} depends on the parameters {_listed(names)}; {_listed(missing)} "
            f"missing. Give all of them, as in `params={_example(names)}`."
        )


def checked_param(name: str, value: ArrayLike, bounds: Bounds, what: str = "parameter") -> Array:
    """Values of one parameter: finite and within the bounds, where they are known."""
    values = real_numbers(name, value)
    # Under `jit` a sampler or optimiser keeps to the bounds by its own change of variables.
    if isinstance(values, jax.core.Tracer):
        return values
    array, (low, high) = np.asarray(values), bounds.get(name, (-np.inf, np.inf))
    _require(f"{what} `{name}`", array, np.isfinite(array), "be finite")
    above = array > low if _scale(low, high) else array >= low
    inside = above & (array <= high)
    _require(f"{what} `{name}`", array, inside, f"lie in {_interval(low, high)}")
    return values


def _require(name: str, array: np.ndarray, good: np.ndarray, what: str) -> None:
    if not np.all(good):
        raise ValueError(
            f"The {name} must {what}, where this density is known; got {array[~good].ravel()[0]:g}."
        )


def _interval(low: float, high: float) -> str:
    open_below = low == -np.inf or _scale(low, high)
    return f"{'(' if open_below else '['}{low:g}, {high:g}{')' if high == np.inf else ']'}"


def _scale(low: float, high: float) -> bool:
    """A scale may be any positive number, but not zero; other bounds are attained."""
    return low == 0 and high == np.inf


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(map(str, names)))


def _example(names: tuple[str, ...]) -> str:
    return "{" + ", ".join(f'"{name}": ...' for name in names) + "}"
