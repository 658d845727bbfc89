r"""A training by fits, which needs no time derivatives.

Over a short time the source with cumulants of each start is the density, and the flow is fitted to
it at a few times. From then on each fit is one step of the Chapman--Kolmogorov equation
(`galerkin.later_density`): the density over the short time carries the density at the last knot to
the next. Nothing is stiff, and the length of a step does not depend on how the parameters move.

Fits over the short time must hold wherever a later step begins. Their starts are states of
simulated paths at all times up to the horizon. Later fits take starts from the start law.

No transition increases the total variation distance of two laws. So the distances that fits leave
on held-out points add up to an estimate of the error, together with that of the short density,
which counts once for each step.
"""

import math
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..galerkin.collocation import Draws, draw, draw_noise, laid_out
from ..galerkin.later_density import (
    DensityAt,
    Target,
    corrections,
    distances,
    later_target,
    source_target,
)
from ..planning.prepare import Prepared
from ..sde.heun import heun_paths
from ..sde.quasi_random import CUBES, sobol
from .loop import Parameters, TimeLoop
from .stages import tell
from .state import Diagnostics, Status

# Knots up to the short time, as shares of it in units of the clock.
_SHORT = (0.25, 0.5, 0.75, 1.0)
# Times at which simulated paths may be where a later step begins, and steps between two of them.
_TIMES, _STEPS = 8, 16
# Intermediate points of each pair, half of them reflections. On a chain of four double wells the
# noise of 32 was 0.023 nats, that of 128 was 0.005; the flow misses 0.02 to 0.04.
_INTERMEDIATE = 32
# Points of a fit for each collocation point of a velocity, and held-out points.
_MORE, _HELD_OUT = 3, 1024
# Iterations of a fit end when the held-out distance decreases by less than this. Errors over the
# short time count once for each step, so that these fits take more iterations.
_WORTHWHILE, _WORTHWHILE_SHORT = 0.02, 0.003
_MOST_ITERATIONS = 20
# Regularisations that are tried in each iteration, relative to the last that was best.
_TRIED = np.array([0.1, 1.0, 10.0])
_FIRST, _LEAST, _MOST = 1e-2, 1e-6, 1e2
# A fit that misses more, root mean square in nats, is no density to go on with.
_FAILED = 0.5


class FittedLoop(TimeLoop):
    """A loop whose steps are fits."""

    CARRIED = (*TimeLoop.CARRIED, "strength")
    strength = _FIRST  # regularisation that was best in the last iteration

    def __init__(self, prepared: Prepared, key: PRNGKeyArray, *rest: Any):
        super().__init__(prepared, key, *rest)
        assert prepared.short is not None
        self.short = self.layout.repeat(prepared.short.ansatz)
        self.step, self.problem = prepared.short.time, prepared.problem

    def advance(self) -> Status:
        """Make one fit."""
        clock = self._next_clock()
        guess = self._guess(clock)
        key = jr.fold_in(self.key, len(self.history))
        target, held_out = (
            self._target(jr.fold_in(key, i), guess, clock, count)
            for i, count in enumerate((_MORE * self.plan.samples, _HELD_OUT))
        )
        if not all(np.all(np.isfinite(values)) for values in (target.values, held_out.values)):
            return Status.NOT_FINITE
        before = float(self._distances([self.theta], clock, held_out)[0])
        theta, distance, iterations = self._fit(guess, clock, target, held_out)
        if self._interrupted():
            return Status.TIME_LIMIT
        if distance > _FAILED:
            return Status.FLOW_TOO_SMALL
        in_sample = float(self._distances([theta], clock, target)[0])
        found = Diagnostics((in_sample / before) ** 2, (distance / before) ** 2, np.nan, np.nan)
        length = clock - self.clock
        self.velocity = (theta - self.theta) / length
        self.move_through(theta, length)
        # Half a root mean square in nats bounds a total variation; `record` adds that of this fit.
        self.bound = self._bound_before()
        sizes = {"error": distance, "source_gap": np.nan, "rejected": iterations}
        self.record(length, before / length, found, regularisation=self.strength, **sizes)
        return Status.FINISHED

    @property
    def _short(self) -> bool:
        """`True` up to the short time."""
        return len(self.history) < len(_SHORT)

    def _next_clock(self) -> float:
        if self._short:
            return _SHORT[len(self.history)] * math.sqrt(self.step)
        return min(math.sqrt(self.clock**2 + self.step), self.end)

    def _guess(self, clock: float) -> Parameters:
        """Return parameters on the line through the last two knots."""
        return self.theta + (clock - self.clock) * self.velocity

    def _target(self, key: PRNGKeyArray, guess: Parameters, clock: float, count: int) -> Target:
        """Return the log-density at a knot, at points of a guess of it."""
        ahead = self._at(guess, clock**2)
        if self._short:
            return source_target(DensityAt(self.short, ahead.tau), ahead, self._early(key, count))
        draw_key, shift_key, cube_key = jr.split(key, 3)
        drawn = draw(self._cube, draw_key, self.starts, self._dim, count, self.plan.effective_share)
        drawn = laid_out(drawn, self.layout)
        shifts = self.layout.divide(np.asarray(jr.uniform(shift_key, drawn.noise.shape)))
        return later_target(
            self._at(self.thetas[len(_SHORT)], self.step),
            self._at(self.theta, self.clock**2),
            ahead,
            drawn,
            shifts,
            jnp.asarray(sobol(cube_key, _INTERMEDIATE // 2, self._dim)),
        )

    def _early(self, key: PRNGKeyArray, count: int) -> Draws:
        """Return draws whose starts are states of paths at random times."""
        path_key, time_key, start_key, noise_key = jr.split(key, 4)
        cube = self._cube(start_key, count, self.problem.conditioning_dim)
        starts = jnp.asarray(self.starts.transport(cube))
        x0 = _visited(self.problem, path_key, time_key, starts)
        drawn = draw_noise(self._cube, noise_key, x0, self._dim, self.plan.effective_share)
        return laid_out(drawn, self.layout)

    @property
    def _dim(self) -> int:
        return self.problem.dim

    @property
    def _cube(self) -> Any:
        sampling = self.settings.sampling
        return CUBES[sampling] if isinstance(sampling, str) else sampling

    def _at(self, theta: Parameters, tau: float) -> DensityAt:
        return DensityAt(self.ansatz.at(jnp.asarray(theta)), jnp.asarray(tau))

    def _fit(
        self, theta: Parameters, clock: float, target: Target, held_out: Target
    ) -> tuple[Parameters, float, int]:
        """Return parameters, their distance on held-out points, and the number of iterations."""
        begins = [theta, self.theta]
        found = self._distances(begins, clock, held_out)
        theta, distance = begins[int(np.argmin(found))], float(np.min(found))
        count = 0
        while count < _MOST_ITERATIONS and not self._interrupted():
            tell("fitting", f"t={clock**2:.4g}, {count} iterations, {distance:.2g} nats away")
            count += 1
            tried = np.clip(self.strength * _TRIED, _LEAST, _MOST)
            at = jnp.asarray(theta), jnp.asarray(clock)
            changes = np.asarray(corrections(self.ansatz, *at, target, jnp.asarray(tried)))
            found = self._distances(theta + changes, clock, held_out)
            best = int(np.argmin(found))
            self.strength = float(tried[best])
            if found[best] < distance:
                gained = 1 - float(found[best]) / distance
                theta, distance = theta + changes[best], float(found[best])
                if gained < (_WORTHWHILE_SHORT if self._short else _WORTHWHILE):
                    break
            elif self.strength < _MOST:
                self.strength = min(10 * float(tried[-1]), _MOST)
            else:
                break
        self.strength = min(self.strength, _FIRST)
        return theta, distance, count

    def _interrupted(self) -> bool:
        """Return `True` if the time is over, and there is a step to return."""
        over = self.seconds() >= self.plan.max_seconds
        return bool(self.history and self.processes.agree(over)[0])

    def _distances(self, thetas: Any, clock: float, target: Target) -> np.ndarray:
        """Return distances from a target; infinite where they are not finite."""
        rows = jnp.asarray(np.asarray(thetas))
        found = np.asarray(distances(self.ansatz, rows, jnp.asarray(clock), target))
        return np.where(np.isfinite(found), found, np.inf)

    def _bound_before(self) -> float:
        """Return the bound at the last knot, and that of the short density if it is used."""
        return 0.0 if self._short else self.bound + self.history[len(_SHORT) - 1].bound


def _visited(
    problem: Any, path_key: PRNGKeyArray, time_key: PRNGKeyArray, starts: Float[Array, "n d+k"]
) -> Float[Array, "n d+k"]:
    """Return conditioning vectors whose states are those of paths at random times."""
    times = jnp.linspace(0.0, problem.horizon, _TIMES + 1)[1:]
    ends = heun_paths(problem.equation, problem.start_time, path_key, starts, times, _STEPS)
    states = jnp.concatenate([starts[None, :, : problem.dim], ends])
    chosen = jr.randint(time_key, (len(starts),), 0, len(states))
    return starts.at[:, : problem.dim].set(states[chosen, jnp.arange(len(starts))])
