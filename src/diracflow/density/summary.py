"""What a density says of itself wherever it goes: its certificate over time, its equation as text.

Two starts stand for the law: its centre, and a point as far out as one draw in twenty.
"""

import inspect
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

# Shares of the horizon for which the certificate is kept.
SHARES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
# Share of the start law further out than its edge.
_EDGE = 0.05


def landmarks(starts: AbstractLaw) -> dict[str, np.ndarray]:
    """Centre and edge of a law."""
    dim = starts.dim
    assert dim is not None  # expanded before anything is learned
    outwards = np.sqrt(chdtri(dim, _EDGE) / dim)
    with jax.enable_x64(True):
        return {
            name: np.asarray(starts.from_uniform(norm.cdf(jnp.full(dim, distance))))
            for name, distance in (("centre", 0.0), ("edge", outwards))
        }


def split(density: LearnedDensity, g: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Start, and keywords of a query, from all that is given."""
    return g[..., : density.dim], density._keywords(g[..., density.dim :])


def described(density: LearnedDensity, g: np.ndarray) -> dict[str, Any]:
    """All that is given, in plain Python."""
    x0, keywords = split(density, g)
    params = {name: float(value) for name, value in keywords["params"].items()}
    time = keywords["start_time"]
    return {
        "x0": x0.tolist(),
        **({"params": params} if params else {}),
        **({} if time is None else {"start_time": float(time)}),
    }


def certificate_table(density: LearnedDensity, key: PRNGKeyArray) -> tuple[dict[str, Any], ...]:
    """The certificate over time at the landmarks, in plain Python."""
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
    """The coefficients as their author wrote them, as far as Python knows; never executed."""
    return {"drift": _source(sde._drift), "diffusion": _source(sde._diffusion)}


def _source(function: Any) -> str:
    try:
        return inspect.getsource(getattr(function, "func", function)).strip()
    except (OSError, TypeError):
        return repr(function)
