r"""`learn`: from an SDE to its transition density."""

import contextlib
import dataclasses
import functools
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .density.composed import ComposedDensity
from .density.extension import extension_text
from .density.guard import outside_starts
from .density.learned import LearnedDensity, TransitionDensity
from .density.provenance import Facts
from .density.summary import certificate_table
from .flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from .galerkin.devices import Layout, checked_chunk, mesh_over
from .planning.basis_rule import settled_basis
from .planning.build_ansatz import (
    build_ansatz,
    require_fitting_source,
    source_name,
    source_reason,
)
from .planning.context_rule import settled_context
from .planning.explosion import explodes
from .planning.memory import fitting_layout, memory_text, predicted_memory, require_memory
from .planning.settings import Settings, settings_for
from .planning.sizes import sampled, sized
from .planning.subinterval_rule import MOST_WALKED, leg_length, legs_text, settled_legs
from .sde.argument_checks import checked_flag, checked_key
from .sde.boundaries import BoundaryWarning, boundaries, boundary_message
from .sde.chart import chart_for
from .sde.coefficient_checks import check_coefficients, check_starts, is_degenerate
from .sde.conditioning import scope
from .sde.laws import AbstractLaw
from .sde.sde import SDE
from .training.checkpointer import NoKeeper, keeper_in
from .training.diagnosis import diagnosis
from .training.environment import versions
from .training.explicit_loop import ExplicitLoop
from .training.history import Record
from .training.loop import TimeLoop
from .training.multiprocess import Crew, crew_of
from .training.progress import Progress, progress_for
from .training.run_identity import identity
from .training.status import Status
from .training.switching_loop import SwitchingLoop


class TrainingFailed(RuntimeError):
    """Numerics ended a training before the horizon.

    `density` holds what was learned, usable up to `density.horizon`; `status` says what happened.
    """

    def __init__(self, density: LearnedDensity):
        self.density = density
        self.status = density.status
        super().__init__(
            f"{self.status.name} at t={density.horizon:g} of {density.facts.asked_horizon:g}: "
            f"{self.status.value} What was learned is in the exception's `density`."
            f"{extension_text(density)}"
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
    checkpoint: str | os.PathLike | None = None,
    memory_limit: float | None = None,
    devices: int | Sequence[jax.Device] | None = None,
    chunk: int | None = None,
    **settings: object,
) -> LearnedDensity:
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
    - `checkpoint`: a directory in which the training is kept while it runs. If it keeps one of the
        same run already, that is gone on with, to the same bits; see the page "Resume a training".
    - `memory_limit`: gigabytes that the training may take, by prediction; all that there are, by
        default. One that would take more streams its rows (`chunk`), and is refused if that does
        not suffice.
    - `devices`: over which points are divided: so many of `jax.devices()`, or a list of some; all
        of them by default, those of other processes included (see the page "Scale out"). The result
        is the same to rounding.
    - `chunk`: rows that each device holds at once; the others are made again when they are needed,
        which takes less memory and more time. By default all are held if memory allows. The result
        is the same to rounding.
    - `settings`: fields of `diracflow.Settings` that replace those of the preset.

    **Returns:**

    A `TransitionDensity`. If a limit (`max_steps`, `max_seconds`) ends the training, a warning
    says so and the density reaches as far as its `horizon`; if numerics do, `TrainingFailed` is
    raised with it.
    """
    called = time.monotonic()
    chosen = settings_for(preset, **settings)
    checked_flag("certify", certify)
    if not callable(progress):
        checked_flag("progress", progress)
    horizon = _positive("horizon", horizon)
    layout = Layout(mesh_over(devices), checked_chunk(chunk))
    crew = crew_of(layout)
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
    law, key = laws.law, checked_key(key)
    with contextlib.ExitStack() as stack:
        with jax.enable_x64(True):
            check_starts(sde, laws.starts)
            check_coefficients(sde, law, began, horizon)
            degenerate = is_degenerate(sde, law, began)
            require_fitting_source(chosen, degenerate)
            keeper = stack.enter_context(keeper_in(checkpoint, crew))
            ends = boundaries(sde, law, began, horizon)
            warned = boundary_message(ends)
            if warned:
                warnings.warn(warned, BoundaryWarning, stacklevel=2)
            chart = chart_for(sde, law, began)
            law = chart.law(law)
            equation = chart.equation()
            chosen = settled_context(chosen, equation, law, began, horizon, degenerate)
            outside = functools.partial(outside_starts, laws, chart)
            chosen = settled_legs(chosen, equation, law, began, horizon, outside)
            reach = leg_length(horizon, chosen)
            chosen = settled_basis(chosen, equation, law, began, reach, degenerate)
            chosen = sized(chosen, sde.dim, law.dim)
            flow_key, draw_key = jr.split(key)
            ansatz = build_ansatz(equation, law, began, reach, chosen, flow_key)
            chosen = sampled(chosen, len(ansatz.theta))
            size = (chosen, len(ansatz.theta), sde.dim)
            layout = fitting_layout(layout, memory_limit, *size)
            memory = predicted_memory(*size, layout)
            require_memory(memory, memory_limit, chosen, len(ansatz.theta))
            why_source = source_reason(chosen.source, ansatz.source, degenerate)
            # A file holds the source that was taken, not the rule that took it.
            chosen = dataclasses.replace(chosen, source=source_name(ansatz.source))
            loop = _loop(ansatz, law, reach, chosen, draw_key, called, layout, crew)
            run = (sde, laws, began, horizon, preset, chosen, key)
            keeper.resume(functools.partial(identity, *run), loop)
            size_text = memory_text(memory, chosen, len(ansatz.theta), layout)
            text = legs_text(horizon, chosen) + size_text
            judge = functools.partial(explodes, equation, law, began, reach)
            status = _run(loop, keeper, reach, progress, text, judge)
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
        density = TransitionDensity(ansatz, loop.trajectory(), laws, facts, chart).composed()
        _tell_of_walks(density)
        if certify and density.horizon > 0 and status is not Status.TIME_LIMIT:  # no time is left
            table = keeper.certificate or certificate_table(density, key)
            keeper.finish(table)
            density = density.with_facts(certificate=table)
    return _delivered(density)


def _loop(
    ansatz: AbstractAnsatz,
    law: AbstractLaw,
    horizon: float,
    chosen: Settings,
    key: PRNGKeyArray,
    called: float,
    layout: Layout,
    crew: Crew,
) -> TimeLoop:
    kind = SwitchingLoop if isinstance(ansatz, StandardisedAnsatz) else ExplicitLoop
    return kind(ansatz, law, horizon, chosen, key, called, layout, crew)


def _run(
    loop: TimeLoop,
    keeper: NoKeeper,
    horizon: float,
    progress: bool | Callable[[float], Progress],
    announcement: str,
    explodes: Callable[[], bool],
) -> Status:
    """Run a loop to its end, keeping what it does and showing it."""
    make = progress if callable(progress) else lambda h: progress_for(h, progress)
    if not loop.crew.first:
        make = Progress  # one of them talks
    with keeper.following(), loop.crew.together(), make(horizon) as display:

        def report(record: Record) -> None:
            keeper.step(loop)
            display.update(record)

        display.announce(announcement)
        display.resume(loop.history)
        status = loop.run(report)
        if status.failed and explodes():
            status = Status.EXPLODING
        display.finish(status)
    return status


def _tell_of_walks(density: LearnedDensity) -> None:
    """Warn where many legs were taken for a lattice that would not suffice."""
    if not isinstance(density, ComposedDensity) or density.lattice is not None:
        return
    if density.legs <= MOST_WALKED:
        return
    warnings.warn(
        f"The {density.legs} legs of this density would meet in too many points of a lattice: its "
        "noise is small beside where paths go. They are walked by quasi-random noise instead, "
        f"which is less accurate; see the certificate, or learn it with `legs={MOST_WALKED}`.",
        stacklevel=3,
    )


def _delivered(density: LearnedDensity) -> LearnedDensity:
    status = density.status
    if status.failed:
        raise TrainingFailed(density)
    if status is not Status.FINISHED:
        cause = diagnosis(density.facts.history)
        warnings.warn(
            f"Training stopped at t={density.horizon:g} of {density.facts.asked_horizon:g}: "
            f"{status.value} What held it up looks like {cause.name}: {cause.value}"
            f"{extension_text(density)}",
            stacklevel=3,
        )
    return density


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
    if isinstance(value, bool | str):
        raise ValueError(f"`{name}` must be a number; got {value!r}.")
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must be finite; got {value}.")
    return number
