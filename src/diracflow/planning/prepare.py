"""From a problem and settings to a plan, and to the objects that training works with.

The order of the rules matters: each may use what those before it chose.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

import jax
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..flow.ansatz import AbstractAnsatz
from ..flow.coupling_flow import IdentityFlow
from ..galerkin.devices import Layout, checked_chunk, mesh_over
from ..sde.argument_checks import checked_number
from ..sde.laws import AbstractLaw
from ..sde.problem import Problem, checked_problem
from ..sde.sde import SDE
from .ansatz_builder import (
    Axes,
    axes_of,
    build_ansatz,
    build_flow,
    idle_dim_for,
    pair_size,
    parameter_count,
)
from .memory import fitting_layout, predicted_memory, require_memory
from .method_rule import ShortDensity, method_rule, require_fits, short_density
from .near_source import NearSource, near_source
from .plan import Plan, plan_of
from .settings import Options, Settings, settings_for
from .size_rules import (
    Choice,
    basis_rule,
    hidden_rule,
    layers_rule,
    networks_rule,
    require_separable,
    samples_rule,
)
from .source_rule import require_nondegenerate
from .subinterval_rule import context_rule, require_autonomous, subinterval_rule
from .widening import stays, widened


class Resources(NamedTuple):
    """The devices, rows held at once and gigabytes that a training may use."""

    layout: Layout
    memory_limit: float | None = None


class Prepared(NamedTuple):
    """A plan, and what it describes."""

    plan: Plan
    settings: Settings  # all of them resolved
    problem: Problem  # up to the time that the flow is trained for
    ansatz: AbstractAnsatz
    layout: Layout
    near: NearSource | None = None  # if it was measured
    short: ShortDensity | None = None  # if the flow is fitted
    patient: bool = True  # whether training goes on however long it will take


class _Draft:
    """Settings that are resolved one after the other, and the reasons of automatic choices."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.reasons: dict[str, str] = {}

    def settle(self, name: str, rule: Callable[[], Choice]) -> None:
        """Let a rule choose a setting, unless the user or the preset has."""
        if getattr(self.settings, name) in (None, "auto"):
            value, reason = rule()
            self.settings = self.settings.replaced(**{name: value})
            self.reasons[name] = reason


def prepare(
    problem: Problem,
    settings: Settings,
    key: PRNGKeyArray,
    resources: Resources | None = None,
    preset: str = "",
    subintervals: Choice | None = None,
) -> Prepared:
    """Make every choice of a training, and build its ansatz.

    **Arguments:**

    - `problem`: what is solved.
    - `settings`: what the user and the preset have set.
    - `key`: for the flow's hidden weights.
    - `resources`: one device without limits by default.
    - `preset`: its name, for the plan.
    - `subintervals`: their number, as an earlier training found it; by default a rule chooses it.
    """
    require_nondegenerate(problem, settings)
    require_separable(problem, settings)
    require_fits(problem, settings)
    idle_dim_for(problem.dim, settings)  # which raises before paths are simulated
    near, resources = near_source(problem, settings), resources or Resources(Layout())
    if near is not None and (settings.method == "source" or near.answers(settings)):
        return source_alone(problem, settings, near, resources, preset)
    draft = _Draft(settings)
    first, axes = _shaped(problem, draft, subintervals)
    flow = build_flow(first, draft.settings, axes, key)
    build = lambda: build_ansatz(first, draft.settings, axes, flow, near)
    ansatz, source = build()
    described = bool(settings.described)
    rule = lambda: method_rule(first, draft.settings, near, source.value, described)
    draft.settle("method", rule)
    if draft.settings.method == "fitted":
        ansatz, source = build()
    parameters = parameter_count(flow)
    draft.settle("samples", lambda: samples_rule(draft.settings, parameters))
    if settings.source == "auto":
        draft.reasons["source"] = source.reason
    chosen = draft.settings
    layout, memory = _placed(resources, chosen, parameters, first.dim)
    plan = plan_of(
        chosen,
        preset=preset,
        horizon=problem.horizon,
        reach=first.horizon,
        starts="widened" if "starts" in draft.reasons else "given",
        source=source.value,
        idle_dim=idle_dim_for(first.dim, chosen),
        parameters=parameters,
        devices=layout.devices,
        chunk=layout.chunk or chosen.samples,
        memory=memory,
        reasons=draft.reasons,
    )
    short = short_density(first) if chosen.method == "fitted" else None
    patient = described or settings.method != "auto"
    return Prepared(plan, chosen, first, ansatz, layout, near, short, patient)


def source_alone(
    problem: Problem, settings: Settings, near: NearSource, resources: Resources, preset: str
) -> Prepared:
    """Return the plan of a density that is a source, without a training."""
    sizes = {"layers": 2, "hidden": 1, "samples": 2, "legs": near.legs}
    names = {"context": "start", "basis": "axes", "networks": "shared", "method": "source"}
    chosen = settings.replaced(**sizes, **names, source=near.source, flow=IdentityFlow())
    first = problem.until(problem.horizon / near.legs)
    ansatz, _ = build_ansatz(first, chosen, Axes(None, None), IdentityFlow())
    reason = f"{near.text}, and nothing was trained"
    plan = plan_of(
        chosen,
        preset=preset,
        horizon=problem.horizon,
        reach=first.horizon,
        starts="given",
        source=near.name,
        idle_dim=0,
        parameters=0,
        devices=resources.layout.devices,
        chunk=resources.layout.chunk or 2,
        memory=0.0,
        reasons={"method": reason} if settings.method == "auto" else {"source": reason},
    )
    return Prepared(plan, chosen, first, ansatz, resources.layout, near)


def _shaped(
    problem: Problem, draft: _Draft, subintervals: Choice | None = None
) -> tuple[Problem, Axes]:
    """Settle division in time, axes and shape of the flow.

    Returns the problem up to the end of the first subinterval, and the axes.
    """
    draft.settle("context", lambda: context_rule(problem, draft.settings))
    draft.settle("legs", lambda: subintervals or subinterval_rule(problem, draft.settings))
    legs = draft.settings.legs or 1
    require_autonomous(problem, legs)
    if legs > 1 and not stays(problem, legs):
        problem = widened(problem, legs)
        draft.reasons["starts"] = "paths leave the law given, where later subintervals begin"
    first = problem.until(problem.horizon / legs)
    draft.settle("basis", lambda: basis_rule(first, draft.settings))
    draft.settle("networks", lambda: networks_rule(first, draft.settings))
    draft.settle("hidden", lambda: hidden_rule(first, draft.settings))
    axes = axes_of(first, draft.settings)
    size = lambda: pair_size(first, draft.settings, axes)
    draft.settle("layers", lambda: layers_rule(first, draft.settings, size))
    return first, axes


def checked_resources(options: Mapping[str, Any]) -> Resources:
    """Return the resources that keyword arguments of `learn` ask for."""
    limit = options.get("memory_limit")
    if limit is not None:
        limit = checked_number("memory_limit", limit)
        if limit <= 0:
            raise ValueError(f"`memory_limit` must be positive; got {limit}.")
    mesh = mesh_over(options.get("devices"))
    return Resources(Layout(mesh, checked_chunk(options.get("chunk"))), limit)


def plan(
    sde: SDE,
    starts: AbstractLaw,
    horizon: float,
    *,
    preset: str = "accurate",
    params: Mapping[str, AbstractLaw] | None = None,
    start_time: float | AbstractLaw = 0.0,
    **options: Unpack[Options],
) -> Plan:
    """Return what `diracflow.learn` would do with the same arguments, without training.

    Printing the plan shows every choice with its reason, the number of parameters and points, and
    the predicted memory.

    **Arguments:** those of `diracflow.learn`.
    """
    settings, resources = settings_for(preset, **options), checked_resources(options)
    with jax.enable_x64(True):
        problem = checked_problem(sde, starts, horizon, params, start_time)
        return prepare(problem, settings, jr.key(0), resources, preset).plan


def _placed(
    resources: Resources, settings: Settings, parameters: int, dim: int
) -> tuple[Layout, float]:
    """Return the layout that fits into memory, and the memory that it takes."""
    limit, size = resources.memory_limit, (settings, parameters, dim)
    layout = fitting_layout(resources.layout, limit, *size)
    memory = predicted_memory(*size, layout)
    require_memory(memory, limit, settings, parameters)
    return layout, memory
