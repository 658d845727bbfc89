r"""The problem that a training solves."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .argument_checks import checked_number
from .boundaries import boundaries
from .chart import Chart, chart_for
from .coefficient_checks import check_coefficients, check_starts, is_degenerate_at, trial_starts
from .conditioning import ConditioningLaws, conditioning_laws
from .fingerprint import first_change
from .laws import AbstractLaw
from .quasi_random import sobol
from .sde import SDE

# Starts at which coefficients at different times are compared.
_DRAWS = 32


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    r"""An SDE, the laws of all that is known when it starts, and how long it runs.

    The SDE and the laws are the user's. Training works in the coordinates of the chart, where
    states range over all of $\mathbb{R}^d$: see `equation` and `law`.
    """

    sde: SDE
    laws: ConditioningLaws  # of starts, parameters and start times
    start_time: float | None  # `None` if it is drawn from a law
    horizon: float
    chart: Chart

    @property
    def dim(self) -> int:
        """The number of components of the state."""
        return self.sde.dim

    @property
    def conditioning_dim(self) -> int:
        """The length of the conditioning vector: start, parameters and start time."""
        return self.law.dim or self.dim

    @functools.cached_property
    def equation(self) -> SDE:
        """The SDE in the coordinates of the chart."""
        return self.chart.equation()

    @functools.cached_property
    def law(self) -> AbstractLaw:
        """The law of the conditioning vector in the coordinates of the chart."""
        return self.chart.law(self.laws.law)

    @functools.cached_property
    def degenerate(self) -> bool:
        r"""`True` if the covariance $\Sigma$ is singular at a draw of the start law."""
        return is_degenerate_at(self.sde, self.start_time, trial_starts(self.laws.law))

    @functools.cached_property
    def boundaries(self) -> tuple[dict[str, Any], ...]:
        """The results of Feller's test at the finite ends of the domain."""
        return boundaries(self.sde, self.laws.law, self.start_time, self.horizon)

    @functools.cached_property
    def autonomous(self) -> bool:
        """`True` if there is one start time, and coefficients are equal at all times tested."""
        if self.start_time is None:
            return False
        draws = jnp.asarray(self.draws(_DRAWS))
        return first_change(self.equation, self.start_time, self.horizon, draws) is None

    def draws(self, count: int) -> Float[np.ndarray, "n d+k"]:
        """Return quasi-random conditioning vectors, the same at every call."""
        cube = sobol(jr.key(0), count, self.conditioning_dim)
        return np.asarray(self.law.transport(cube))

    def states(self, g: Float[Array, "n d+k"]) -> Float[Array, "n d+k"]:
        """Map the states in conditioning vectors from the coordinates of the chart."""
        y, rest = jnp.split(g, [self.dim], axis=1)
        return jnp.concatenate([jax.vmap(self.chart.from_real)(y), rest], axis=1)

    def until(self, horizon: float) -> "Problem":
        """Return the same problem with another horizon."""
        return dataclasses.replace(self, horizon=horizon)


def checked_problem(
    sde: SDE,
    starts: AbstractLaw,
    horizon: float,
    params: Mapping[str, AbstractLaw] | None = None,
    start_time: float | AbstractLaw = 0.0,
) -> Problem:
    """Return the problem of some arguments of `learn`, or raise if it has no solution.

    **Arguments:** as for `diracflow.learn`. Must be called in float64.
    """
    if not isinstance(sde, SDE):
        raise ValueError(f"`sde` must be a `diracflow.SDE`; got {type(sde).__name__}.")
    if not isinstance(starts, AbstractLaw):
        raise ValueError(
            f"`starts` must be a law such as `diracflow.Normal(0.0, 1.0)`; got {starts!r}."
        )
    until = checked_number("horizon", horizon)
    if until <= 0:
        raise ValueError(f"`horizon` must be positive; got {horizon}.")
    times = start_time if isinstance(start_time, AbstractLaw) else None
    began = None if times is not None else checked_number("start_time", start_time)
    laws = conditioning_laws(sde, starts, params, times)
    check_starts(sde, laws.starts)
    check_coefficients(sde, laws.law, began, until)
    return Problem(sde, laws, began, until, chart_for(sde, laws.law, began))
