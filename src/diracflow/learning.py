r"""`learn`: from an SDE to its transition density."""

import dataclasses
import platform
import time
import warnings
from collections.abc import Callable, Mapping

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .density.card import certificate_table
from .density.transition import Facts, TransitionDensity
from .flow.ansatz import StandardisedAnsatz
from .problem.boundaries import BoundaryWarning, boundaries, boundary_message
from .problem.chart import chart_for
from .problem.checks import check_coefficients, check_starts, is_degenerate
from .problem.given import scope
from .problem.laws import AbstractLaw
from .problem.sde import SDE
from .training.build import (
    build_ansatz,
    require_fitting_source,
    source_name,
    source_reason,
)
from .training.diagnosis import diagnosis
from .training.explicit_loop import ExplicitLoop
from .training.explosion import explodes
from .training.loop import TimeLoop
from .training.memory import memory_text, predicted_memory, require_memory
from .training.progress import Progress, progress_for
from .training.settings import sampled, settings_for, sized
from .training.status import Status
from .training.switching_loop import SwitchingLoop


class TrainingFailed(RuntimeError):
    """Numerics ended a training before the horizon.

    `density` holds what was learned, usable up to `density.horizon`; `status` says what happened.
    """

    def __init__(self, density: TransitionDensity):
        self.density = density
        self.status = density.status
        super().__init__(
            f"{self.status.name} at t={density.horizon:g} of {density.facts.asked_horizon:g}: "
            f"{self.status.value} What was learned is in the exception's `density`."
        )


def learn(
    sde: SDE,
    starts: AbstractLaw,
    horizon: float,
    *,
    key: PRNGKeyArray,
    preset: str = "accurate",
    params: Mapping[str, AbstractLaw] | None = None,
    start_time: float | AbstractLaw = 0.0,
    progress: bool | Callable[[float], Progress] = False,
    certify: bool = True,
    memory_limit: float | None = None,
    **settings: object,
) -> TransitionDensity:
    r"""Learn the density of $X(s+t)$ for every start in the bulk of a law and every $t$.

    **Arguments:**

    - `sde`: the equation. If its states are constrained to a domain, it is learned in
        coordinates without ends, and a `BoundaryWarning` tells of ends that paths can reach.
    - `starts`: law of the start point, such as `diracflow.Normal(0.0, 1.0)`; scalars are repeated
        over the components. All of it must lie inside the domain.
    - `horizon`: the longest time $T$ since the start.
    - `key`: of `jax.random.key`; equal keys give equal results.
    - `preset`: `"quick"`, `"accurate"` or `"paper"`.
    - `params`: a law of one number for each parameter of the SDE, such as
        `{"rate": diracflow.Uniform(1, 4)}`. Queries then take values of them.
    - `start_time`: the time $s$, for coefficients that depend on time, or a law of it. With a law,
        queries take the time.
    - `progress`: show how far the training is.
    - `certify`: compute, at the end, the certificate that files carry with them; not if the end
        is `max_seconds`.
    - `memory_limit`: gigabytes that the training may take, by prediction; all that there are, by
        default. One that would take more is refused.
    - `settings`: fields of `diracflow.Settings` that replace those of the preset.

    **Returns:**

    A `TransitionDensity`. If a limit (`max_steps`, `max_seconds`) ends the training, a warning
    says so and the density reaches as far as its `horizon`; if numerics do, `TrainingFailed` is
    raised with it.
    """
    called = time.monotonic()
    chosen = settings_for(preset, **settings)
    horizon = _positive("horizon", horizon)
    if memory_limit is not None:
        memory_limit = _positive("memory_limit", memory_limit)
    times = start_time if isinstance(start_time, AbstractLaw) else None
    began = None if isinstance(start_time, AbstractLaw) else _real("start_time", start_time)
    if not isinstance(sde, SDE):
        raise ValueError(f"`sde` must be a `diracflow.SDE`; got {type(sde).__name__}.")
    if not isinstance(starts, AbstractLaw):
        raise ValueError(
            f"`starts` must be a law such as `diracflow.Normal(0.0, 1.0)`; got {starts!r}."
        )
    laws = scope(sde, starts, params, times)
    law, key = laws.law, _typed(key)
    chosen = sized(chosen, sde.dim, law.dim)
    with jax.enable_x64(True):
        check_starts(sde, laws.starts)
        check_coefficients(sde, law, began, horizon)
        degenerate = is_degenerate(sde, law, began)
        require_fitting_source(chosen, degenerate)
        ends = boundaries(sde, law, began, horizon)
        warned = boundary_message(ends)
        if warned:
            warnings.warn(warned, BoundaryWarning, stacklevel=2)
        chart = chart_for(sde, law, began)
        law = chart.law(law)
        flow_key, draw_key = jr.split(key)
        ansatz = build_ansatz(chart.equation(), law, began, horizon, chosen, flow_key)
        chosen = sampled(chosen, len(ansatz.theta))
        memory = predicted_memory(chosen, len(ansatz.theta), sde.dim)
        require_memory(memory, memory_limit, chosen, len(ansatz.theta))
        why_source = source_reason(chosen.source, ansatz.source, degenerate)
        # A file holds the source that was taken, not the rule that took it.
        chosen = dataclasses.replace(chosen, source=source_name(ansatz.source))
        run = (law, horizon, chosen, draw_key, called)
        loop: TimeLoop = ExplicitLoop(ansatz, *run)
        if isinstance(ansatz, StandardisedAnsatz):
            loop = SwitchingLoop(ansatz, *run)
        make_progress = progress if callable(progress) else lambda h: progress_for(h, progress)
        with make_progress(horizon) as display:
            display.announce(memory_text(memory, chosen, len(ansatz.theta)))
            status = loop.run(display.update)
            if status.failed and explodes(chart.equation(), law, began, horizon):
                status = Status.EXPLODING
            display.finish(status)
    facts = Facts(
        settings=chosen,
        preset=preset,
        asked_horizon=horizon,
        status=status,
        seconds=loop.seconds(),
        history=tuple(loop.history),
        versions=versions(),
        why_source=why_source,
        key=tuple(np.asarray(jr.key_data(key)).ravel().tolist()),
        boundaries=ends,
        memory=memory,
    )
    density = TransitionDensity(ansatz, loop.trajectory(), laws, facts, chart)
    if certify and density.horizon > 0 and status is not Status.TIME_LIMIT:  # no time is left
        density = density.with_facts(certificate=certificate_table(density, key))
    return _delivered(density)


def versions() -> dict[str, str]:
    """Versions of what determines the numbers."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("diracflow", "jax", "jaxlib", "equinox")}
    return {**packages, "python": platform.python_version()}


def _delivered(density: TransitionDensity) -> TransitionDensity:
    status = density.status
    if status.failed:
        raise TrainingFailed(density)
    if status is not Status.FINISHED:
        cause = diagnosis(density.facts.history)
        warnings.warn(
            f"Training stopped at t={density.horizon:g} of {density.facts.asked_horizon:g}: "
            f"{status.value} What held it up looks like {cause.name}: {cause.value}",
            stacklevel=3,
        )
    return density


def _typed(key: PRNGKeyArray) -> PRNGKeyArray:
    if not isinstance(key, jax.Array):
        raise ValueError(f"`key` must come from `jax.random.key(seed)`; got {key!r}.")
    return key if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key) else jr.wrap_key_data(key)


def _positive(name: str, value: float) -> float:
    number = _real(name, value)
    if number <= 0:
        raise ValueError(f"`{name}` must be positive; got {value}.")
    return number


def _real(name: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"`{name}` must be a number; got {value!r}.") from None
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must be finite; got {value}.")
    return number
