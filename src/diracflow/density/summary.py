"""Descriptions of a density for files, reports and people: error bounds, equation, laws.

Error bounds are computed from two starts: the centre of the start law, and an edge beyond which one
draw in twenty lies.
"""

import inspect
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import PRNGKeyArray
from scipy.special import chdtri

from ..sde.laws import AbstractLaw
from ..sde.sde import SDE
from .learned import LearnedDensity

# Times of the stored error bounds, relative to the horizon.
SHARES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
# Share of the start law beyond its edge.
_EDGE = 0.05


def landmarks(starts: AbstractLaw) -> dict[str, np.ndarray]:
    """Return the centre and the edge of a law."""
    dim = starts.dim
    assert dim is not None  # expanded before anything is learned
    outwards = np.sqrt(chdtri(dim, _EDGE) / dim)
    with jax.enable_x64(True):
        return {
            name: np.asarray(starts.from_uniform(norm.cdf(jnp.full(dim, distance))))
            for name, distance in (("centre", 0.0), ("edge", outwards))
        }


def split(density: LearnedDensity, g: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Split a conditioning vector into the start and the keywords of a query."""
    return g[..., : density.dim], density._keywords(g[..., density.dim :])


def described(density: LearnedDensity, g: np.ndarray) -> dict[str, Any]:
    """Return a conditioning vector in plain Python."""
    x0, keywords = split(density, g)
    params = {name: float(value) for name, value in keywords["params"].items()}
    time = keywords["start_time"]
    return {
        "x0": x0.tolist(),
        **({"params": params} if params else {}),
        **({} if time is None else {"start_time": float(time)}),
    }


def certificate_table(density: LearnedDensity, key: PRNGKeyArray) -> tuple[dict[str, Any], ...]:
    """Compute the error bound over time at the two starts, in plain Python."""
    times, starts = density.horizon * np.array(SHARES), landmarks(density.scope.law)
    with jax.enable_x64(True):
        x0, keywords = split(density, np.stack(list(starts.values())))
        found = density.certificate(jr.fold_in(key, 0), times[:, None], x0, samples=64, **keywords)
    return tuple(
        {
            "t": float(times[i]),
            "start": name,
            **described(density, starts[name]),
            "bound": float(found.bound[i, j]),
            "stderr": float(found.stderr[i, j]),
        }
        for i in range(len(times))
        for j, name in enumerate(starts)
    )


def equation_text(sde: SDE) -> dict[str, str]:
    """Return the source text of the coefficients, which is never executed."""
    return {"drift": _source(sde._drift), "diffusion": _source(sde._diffusion)}


def _source(function: Any) -> str:
    try:
        return inspect.getsource(getattr(function, "func", function)).strip()
    except (OSError, TypeError):
        return repr(function)


def format_law(description: Mapping[str, Any]) -> str:
    """Format the description of a law or a domain as a call of its constructor."""
    kind = "law" if "law" in description else "domain"
    rest = {name: value for name, value in description.items() if name not in (kind, "name")}
    return f"{description[kind]}({', '.join(f'{name}={_value(rest[name])}' for name in rest)})"


def format_boundaries(boundaries: Sequence[Mapping[str, Any]]) -> str:
    """Format the results of Feller's test."""
    return "; ".join(
        f"component {row['component']} at {row['end']:g}: "
        f"{'ACCESSIBLE, unreliable near it' if row['accessible'] else 'not reached'}"
        f" (index {row['index'] and round(row['index'], 3)})"
        for row in boundaries
    )


def format_residuals(held_out: Sequence[float]) -> str:
    """Format the held-out residuals of the steps of a training."""
    # The first step has no earlier velocity, and so no held-out residual.
    values = list(held_out)[1:]
    if not values:
        return "none recorded"
    return f"median {median(values):.1e}, largest {max(values):.1e}, last {values[-1]:.1e}"


def _value(value: Any) -> str:
    """Format a value, or the laws of a product or a mixture."""
    if isinstance(value, Mapping):
        return format_law(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
