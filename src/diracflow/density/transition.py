r"""The artefact of a training: the transition density for every start and every time."""

import dataclasses
import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..certify.certificate import Certificate, certificate
from ..certify.residual import Moving, moving
from ..flow.ansatz import AbstractAnsatz
from ..problem.arguments import checked_point
from ..problem.broadcast import map_points
from ..problem.laws import AbstractLaw
from ..problem.sde import SDE
from ..problem.transition import AbstractTransitionDensity
from ..source.transition import SourceDensity
from ..training.history import Record
from ..training.settings import Settings
from ..training.status import Status
from ..training.trajectory import Trajectory
from .guard import furthest, guard


# Compared by identity: JAX hashes static fields on every call, and histories are long.
@dataclasses.dataclass(frozen=True, eq=False)
class Facts:
    """How a density came about."""

    settings: Settings
    preset: str
    asked_horizon: float
    status: Status
    seconds: float
    history: tuple[Record, ...]
    versions: dict[str, str]
    why_source: str = ""  # the reason for `settings.source`
    key: tuple[int, ...] = ()  # the data of the random key
    certificate: tuple[dict[str, Any], ...] = ()  # over time at landmarks; see `card`
    errors: tuple[dict[str, Any], ...] = ()  # against the exact density, where it was known


class TransitionDensity(AbstractTransitionDensity):
    r"""The learned density $\rho(x | t, x_0)$ of $X(s+t)$ given $X(s) = x_0$.

    Made by `diracflow.learn` or `diracflow.load`. Positive, of unit mass, and the point mass at
    `x0` as $t\to0$, all by construction. Queries run in JAX's current precision: float32 unless
    `jax_enable_x64` is set; training always uses float64.
    """

    ansatz: AbstractAnsatz
    trajectory: Trajectory
    starts: AbstractLaw
    facts: Facts = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(
        self, ansatz: AbstractAnsatz, trajectory: Trajectory, starts: AbstractLaw, facts: Facts
    ):
        # Held as NumPy arrays, float64 survives outside JAX's x64 mode.
        self.ansatz = jax.tree.map(lambda a: np.asarray(a) if eqx.is_array(a) else a, ansatz)
        self.trajectory, self.starts, self.facts = trajectory, starts, facts
        self.dim = self.noise_dim = ansatz.source.sde.dim
        # The square of the last clock may differ from the horizon asked for by rounding.
        finished = facts.status is Status.FINISHED
        self.horizon = facts.asked_horizon if finished else float(trajectory.clocks[-1]) ** 2

    @property
    def sde(self) -> SDE:
        """The equation whose density this is."""
        return self.ansatz.source.sde

    @property
    def start_time(self) -> float:
        r"""The time $s$ of the start."""
        return self.ansatz.source.start_time

    @property
    def status(self) -> Status:
        """How the training ended."""
        return self.facts.status

    def residual(
        self,
        x: Float[ArrayLike, "*batch d"],
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
    ) -> Float[Array, "*batch"]:
        r"""By how much the density fails the Fokker--Planck equation at `x`.

        That is $\partial_t q - \mathcal{A}_t[q]$ with $q$ the log-density, per unit of time.
        """
        return _residuals(self, *self._checked(t, x=x, x0=x0))

    def certificate(
        self,
        key: PRNGKeyArray,
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        samples: int = 128,
    ) -> Certificate:
        """A bound on the total variation distance to the true transition density.

        No exact solution is needed; see the page "How far can I trust it?" for the conditions.

        **Arguments:**

        - `key`: for the samples.
        - `t`, `x0`: times and starts, which broadcast against each other.
        - `samples`: how many at each of three nodes in every step of the training, for each start.

        **Returns:**

        `bound`, at most 1, and its standard error `stderr`, both as NumPy arrays of the broadcast
        shape. Computed in float64.
        """
        if samples < 2:
            raise ValueError(f"`samples` must be at least 2; got {samples}.")
        with jax.enable_x64(True):
            time, start = map(np.asarray, self._checked(t, x0=x0))
        np.broadcast_shapes(time.shape, start.shape[:-1])
        return certificate(self.ansatz, self.trajectory, key, time, start, samples)

    def coverage(self, x0: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Share of the start law lying further out than `x0`: 1 at the centre, 0 outside.

        Starts that the law makes rare were rare in training, too; see `outside`.
        """
        return self.starts.coverage(checked_point("x0", x0, self.dim))

    def outside(self, x0: Float[ArrayLike, "*batch d"]) -> Bool[Array, "*batch"]:
        """Whether starts lie outside what the density was trained for, also under `jit`.

        Such are the starts beyond all but one in ten thousand of the start law.
        """
        return self.starts.squared_distance(checked_point("x0", x0, self.dim)) > furthest(self.dim)

    def source_only(self) -> SourceDensity:
        """The source without the flow: what one has before learning anything."""
        return SourceDensity(self.ansatz.source, self.horizon)

    def with_facts(self, **changes: Any) -> "TransitionDensity":
        """The same density, knowing more of itself."""
        facts = dataclasses.replace(self.facts, **changes)
        return TransitionDensity(self.ansatz, self.trajectory, self.starts, facts)

    def save(self, path: str | os.PathLike) -> None:
        """Write the density to a file that `diracflow.load` reads."""
        from .files import save  # which needs this class

        save(self, path)

    def stages(
        self, noise: Float[ArrayLike, "n d"], t: float, x0: Float[ArrayLike, " d"]
    ) -> Float[Array, "layers+1 n d"]:
        """Points of the source and their images after each layer, down to the state itself."""
        time, noise, x0 = self._checked(t, noise=noise, x0=x0)
        return _stages(self, time, noise, x0)

    def _at_time(self, t: Float[Array, ""]) -> tuple[Float[Array, ""], AbstractAnsatz]:
        return t, self.ansatz.at(self.trajectory(t))

    def _log_prob(
        self, state: Any, x: Float[Array, " d"], x0: Float[Array, " d"]
    ) -> Float[Array, ""]:
        t, ansatz = state
        return ansatz.log_prob(x, t, x0)

    def _from_noise(
        self, state: Any, noise: Float[Array, " d"], x0: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        t, ansatz = state
        return ansatz.from_noise(noise, t, x0)

    def _guard(self, x0: Float[Array, "*batch d"], strict: bool) -> None:
        if not isinstance(x0, jax.core.Tracer):
            guard(self.starts, x0, strict, once_for=self.facts)

    def _why_horizon(self) -> str:
        if self.status is Status.FINISHED:
            return " Learn it again with a longer horizon."
        return f" Training stopped short of {self.facts.asked_horizon:g}: {self.status.value}"


@eqx.filter_jit
def _residuals(density: TransitionDensity, t: Array, x: Array, x0: Array) -> Array:
    def at_time(t: Array) -> Moving:
        return moving(density.ansatz, density.trajectory, jnp.sqrt(t))

    def at_point(state: Moving, x: Array, x0: Array) -> Array:
        y = state.ansatz.coordinates(x, state.clock, x0)
        return state.residual(y, x0) / (2 * state.clock)

    return map_points(at_time, at_point, t, x, x0)


@eqx.filter_jit
def _stages(density: TransitionDensity, t: Array, noise: Array, x0: Array) -> Array:
    _, ansatz = density._at_time(t)

    def one(noise: Float[Array, " d"]) -> Float[Array, "layers+1 d"]:
        return ansatz.stages(noise, t, x0)

    return jax.vmap(one, out_axes=1)(noise)
