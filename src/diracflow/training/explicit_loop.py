"""Explicit steps with the velocity of the parameters, as in the paper."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..galerkin.collocation import Draws
from ..galerkin.velocity import Velocity, survey, velocity
from .diagnosis import diagnosis
from .explicit_step import Parameters, Step, VectorField, bogacki_shampine
from .loop import MOST_CHANGE, SMALLEST, TimeLoop
from .status import Status


class ExplicitLoop(TimeLoop):
    """A loop of Bogacki--Shampine steps."""

    CARRIED = (*TimeLoop.CARRIED, "candidates")
    # Velocities at the end of the last step, for several regularisations.
    candidates: np.ndarray | None = None

    def advance(self) -> Status:
        return self.explicit_step()

    def explicit_step(self) -> Status:
        """One accepted step."""
        field = self.field(self.draw())
        start = field(self.theta, self.clock)
        if not _finite(start.theta_dot):
            return Status.NOT_FINITE
        rejected = 0
        longest = MOST_CHANGE / max(float(start.forcing), 1e-300)
        while True:
            length = min(self.length, self.end - self.clock, longest)
            (length,) = self.crew.agree(length)
            step = bogacki_shampine(field, self.theta, self.clock, length, start)
            step = dataclasses.replace(step, error=self.crew.agree(step.error)[0])
            if step.error <= self.share(length) and _finite(step.end.theta_dot):
                self.accept(step, start, length, rejected)
                return Status.FINISHED
            rejected += 1
            # NaN fails the comparison above; there the estimate says nothing, so the step is cut.
            finite = np.isfinite(step.error)
            shorter = self.next_length(length, step.error) if finite else 0.2 * length
            self.length = min(shorter, 0.7 * length)
            if self.length < SMALLEST * self.end:
                return diagnosis(self.history) if finite else Status.NOT_FINITE
            if self.late():
                return Status.TIME_LIMIT

    def accept(self, step: Step, start: Velocity, length: float, rejected: int) -> None:
        """Move to the end of a step and prepare the next."""
        forcing = float(start.forcing)
        fresh = np.asarray(start.held_out_residuals)
        fresh_residual = self.regularisation.choose(fresh, self.good_enough(forcing))
        prior = jnp.asarray(self.prior())
        spread = jnp.asarray(self.regularisation.spread())
        judged = survey(step.end.normal, spread, prior)
        self.candidates = np.asarray(judged.candidates)
        self.velocity = np.asarray(step.end.theta_dot)
        self.move(step.theta, length, (np.asarray(start.theta_dot), self.velocity))
        self.length = self.next_length(length, step.error)
        present = len(judged.ranks) // 2
        self.record(
            length,
            forcing,
            fresh_residual,
            error=step.error,
            residual=float(start.residual),
            regularisation=self.regularisation.value,
            rank=float(judged.ranks[present]),
            condition=float(judged.conditions[present]),
            source_gap=float(start.source_gap),
            rejected=rejected,
        )

    def field(self, draws: Draws) -> VectorField:
        """The velocity over fixed draws."""
        known = self._known()
        frozen = self.place(self.theta, self.clock, draws)

        def field(theta: Parameters, clock: float) -> Velocity:
            points = frozen
            if not self.ansatz.standardised:  # raw points spread with the density
                points = self.place(theta, clock, draws)
            found = velocity(self.ansatz, jnp.asarray(theta), jnp.asarray(clock), points, *known)
            if self.negligible(float(found.forcing)):
                return eqx.tree_at(lambda v: v.theta_dot, found, jnp.zeros_like(found.theta_dot))
            return found

        return field

    def compilation(self) -> Callable[[], object]:
        """A task that compiles the velocity, for another thread, and runs nothing.

        Two programs that run at the same time can wait for each other's threads for ever: in twenty
        dimensions they did.
        """
        points = self.place(self.theta, self.clock, self.draw())
        theta, clock = jnp.asarray(self.theta), jnp.asarray(self.length)
        arguments = (self.ansatz, theta, clock, points, *self._known())

        def compile_velocity() -> object:
            with jax.enable_x64(True):  # each thread has a precision of its own
                return velocity.lower(*arguments).compile()  # type: ignore[attr-defined]

        return compile_velocity

    def _known(self) -> tuple[Array, Array, Array]:
        """Regularisation, prior and candidates: what a velocity takes over from earlier steps."""
        known = self.candidates
        if known is None:
            known = np.zeros((len(self.regularisation.spread()), len(self.theta)))
        strength, prior = jnp.asarray(self.regularisation.value), jnp.asarray(self.prior())
        return strength, prior, jnp.asarray(known)


def _finite(theta_dot: Array) -> bool:
    return bool(np.all(np.isfinite(theta_dot)))
