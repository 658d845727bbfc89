"""The common base of learned densities: provenance, residual, error bound, coverage and file."""

import abc
import dataclasses
import os
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..certify.certificate import Certificate, CertificateQuery, Estimate, certificate_query
from ..certify.residual import Moving, moving
from ..distribution.lazy_plot import plotted
from ..planning.plan import Plan
from ..sde.argument_checks import checked_flag, checked_point
from ..sde.chart import Chart
from ..sde.conditioning import ConditioningLaws
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..sde.sde import SDE
from ..training.state import Record, Status
from ..transition.broadcast import map_points
from ..transition.transition_density import (
    AbstractTransitionDensity,
    checked_query,
    with_axis,
)

if TYPE_CHECKING:
    from .learned import TransitionDensity


# Compared by identity: JAX hashes static fields on every call, and histories are long.
@dataclasses.dataclass(frozen=True, eq=False)
class Provenance:
    """The plan and the course of the training of a density.

    **Arguments:**

    - `plan`: every choice of the training, with the reasons of the automatic ones.
    - `status`: how the training ended.
    - `seconds`: its wall time.
    - `history`: a record of each accepted step.
    - `versions`: of diracflow and the packages it uses.
    - `key`: the data of the random key.
    - `certificate`: the error bound over time, at two starts.
    - `errors`: against the exact density, where it is known.
    - `boundaries`: Feller's test at the ends of the domain.
    """

    plan: Plan
    status: Status
    seconds: float
    history: tuple[Record, ...]
    versions: dict[str, str]
    key: tuple[int, ...] = ()
    certificate: tuple[dict[str, Any], ...] = ()
    errors: tuple[dict[str, Any], ...] = ()
    boundaries: tuple[dict[str, Any], ...] = ()


class AbstractLearnedDensity(AbstractTransitionDensity):
    """A density that was learned for starts of a law, or is composed of one that was."""

    if TYPE_CHECKING:  # fields or properties of the subclasses

        @property
        def sde(self) -> SDE: ...
        @property
        def scope(self) -> ConditioningLaws: ...
        @property
        def chart(self) -> Chart: ...
        @property
        def provenance(self) -> Provenance: ...

    @property
    def starts(self) -> AbstractLaw:
        """The law of starts that the density was trained on."""
        return self.scope.starts

    @property
    def status(self) -> Status:
        """The status with which the training ended."""
        return self.provenance.status

    def plot_history(self, ax: Any = None) -> Any:
        """Draw the residuals and the error bound of the training over time; return the `Axes`.

        **Arguments:**

        - `ax`: a matplotlib `Axes`; by default that of a new figure.
        """
        return plotted(self, ax, "history_panel")

    def residual(
        self,
        x: Float[ArrayLike, "*batch d"],
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
    ) -> Float[Array, "*batch"]:
        r"""Return the residual of the Fokker--Planck equation at `x`.

        It is $\partial_t q - \mathcal{A}_t[q]$ with $q$ the log-density, per unit of time.
        Arguments are those of `log_prob`, with `t <= reach`.
        """
        flow = self._trained("A residual", t)
        query = checked_query(flow, t, params, start_time=start_time, finite=True, x=x, x0=x0)
        return _residuals(flow, *query)

    def stages(
        self,
        noise: Float[ArrayLike, "n d"],
        t: float,
        x0: Float[ArrayLike, " d"],
        params: Params | None = None,
        *,
        start_time: float | None = None,
    ) -> Float[Array, "layers+1 n d"]:
        """Return points of the source and their images after each layer of the flow.

        **Arguments:**

        - `noise`: standard normal numbers, one point a row.
        - `t`, `x0`, `params`, `start_time`: one time `t <= reach`, one start, and what else a query
            needs.
        """
        flow = self._trained("The sequence of layers", t)
        query = checked_query(flow, t, params, start_time=start_time, noise=noise, x0=x0)
        time, noise, x0 = query
        if (time.ndim, noise.ndim, x0.ndim) != (0, 2, 1):
            raise ValueError(
                "`stages` needs rows of `noise`, one time and one start; got shapes "
                f"{noise.shape}, {time.shape} and {x0.shape}."
            )
        return _stages(flow, time, noise, x0)

    def certificate(
        self,
        key: PRNGKeyArray,
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        samples: int = 128,
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
        estimate: bool = False,
    ) -> Certificate:
        """Return a bound on the total variation distance to the true transition density.

        No exact solution is needed; see the page "How far can I trust it?" for the conditions.

        **Arguments:**

        - `key`: a random key, or a seed, for the samples.
        - `t`, `x0`: times and starts, which broadcast against each other.
        - `samples`: number of samples for each start at each of three nodes of every training step.
        - `params`, `start_time`: parameters of the SDE and start times, if the density was learned
            over these; they broadcast with the starts.
        - `estimate`: `True` to estimate the distance as well, from paths that run back in time.
            It takes seconds for each time and start, and is most often within a factor of two of
            the distance, where the bound is larger by an order of magnitude.

        **Returns:**

        `bound`, at most 1, and its standard error `stderr`, both as NumPy arrays of the broadcast
        shape. Computed in float64; the term for rounding is that of JAX's current precision, in
        which the density is evaluated. `estimate` is `None`, or has `value`, `stderr`, `parts`, and
        `dominant`, the name of the largest part.
        """
        conditioning: dict[str, Any] = {"params": params, "start_time": start_time}
        query = certificate_query(self, self.chart, key, samples, t=t, x0=x0, **conditioning)
        found = self._error_estimate(query) if checked_flag("estimate", estimate) else None
        bound, stderr, _ = self._error_bound(query)
        # No two laws differ by more than one. Noisy bounds are averaged before they are cut off.
        return Certificate(np.minimum(bound, 1.0), stderr, found)

    def coverage(
        self,
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        start_time: Float[ArrayLike, "*batch"] | None = None,
    ) -> Float[Array, "*batch"]:
        """Return the part of the start law that lies further out than `x0`.

        It is 1 at the centre and 0 outside. Starts that are rare under the law were rare in
        training; see `outside`.

        **Arguments:**

        - `x0`: the start.
        - `params`, `start_time`: parameters and start time, which count as part of the start.
            Inside the box of a `Uniform` law all of them count alike.
        """
        start = checked_point("x0", with_axis(self.dim, x0), self.dim)
        return self.scope.coverage(self._joined(start, params, start_time))

    def save(self, path: str | os.PathLike) -> None:
        """Write the density to a file that `diracflow.load` reads.

        **Arguments:**

        - `path`: the file, which is replaced if it exists.
        """
        from .model_file import save  # which imports the classes of densities

        save(self, path)

    @abc.abstractmethod
    def _error_bound(self, query: CertificateQuery) -> Certificate:
        """Return the bound of `certificate`, which here may exceed one."""

    @abc.abstractmethod
    def _error_estimate(self, query: CertificateQuery) -> Estimate:
        """Return the estimate of `certificate`."""

    @abc.abstractmethod
    def _trained(self, what: str, t: Float[ArrayLike, "*batch"]) -> "TransitionDensity":
        """Return the density of the trained flow; raise if `what` is not defined at a time `t`."""


@eqx.filter_jit
def _residuals(density: "TransitionDensity", t: Array, x: Array, x0: Array) -> Array:
    def at_time(t: Array) -> Moving:
        return moving(density.ansatz, density.trajectory, jnp.sqrt(t))

    def at_point(state: Moving, x: Array, x0: Array) -> Array:
        # Relative rates are the same in states and coordinates; outside there is no density.
        y, log_slope = density.chart.end(x)
        y0 = density.chart.start(x0)
        residual = state.residual(state.ansatz.coordinates(y, state.clock, y0), y0)
        return jnp.where(log_slope > -jnp.inf, residual, jnp.nan) / (2 * state.clock)

    return map_points(at_time, at_point, t, x, x0)


@eqx.filter_jit
def _stages(density: "TransitionDensity", t: Array, noise: Array, x0: Array) -> Array:
    ansatz = density._at_time(t).ansatz

    def one(noise: Float[Array, " d"]) -> Float[Array, "layers+1 d"]:
        return jax.vmap(density.chart.from_real)(ansatz.stages(noise, t, density.chart.start(x0)))

    return jax.vmap(one, out_axes=1)(noise)
