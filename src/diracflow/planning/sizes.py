"""How large a flow is, and how many points it is learned with, from settings alone.

Files are checked with the count before anything is built from what they say.
"""

import dataclasses
import math

from ..flow.monotone import outputs
from ..flow.networks import SHARED
from .build_ansatz import context_size
from .masks import idle_dim_for, partner_count
from .settings import Settings

# Layers that are not asked for end here: the cost of a velocity grows with the third power of the
# number of parameters, and took 11 s with 4720 of them on two cores.
_MOST_PARAMETERS = 5500
# The same with networks of components' own, where one pair of layers does much: on Beneš in four
# dimensions (`quick`, seed 0) it led to 5e-5 at t = 3, two pairs to 9e-6 at t = 2.6, both in 75 s.
# In ten dimensions two pairs have 2772 parameters, and took 15 s a step.
_MOST_OWN = 2000
# Units of a component's own network, for the tolerance of `accurate`.
_OWN_WIDTH = 4.7
# Up to here the points are a power of two, for which Sobol points are balanced. Beyond it three
# quarters of one may do, which saves as much of the time; what that costs in error is not measured.
_BALANCED = 4096


def sized(settings: Settings, dim: int, given: int | None = None) -> Settings:
    """The settings with layers and width filled in for a problem in `dim` dimensions.

    `given` is the number of inputs, parameters and start time included; `dim` without these.

    Two splits of the components into halves cannot tell apart more than four of them, three not
    more than eight: pairs of layers grow with the logarithm of the dimension, until they have too
    many parameters. The outputs of a shared network grow with the dimension and its width falls, so
    that the number of parameters grows slowly until the width is down to three. Components with
    networks of their own keep their width, and two splits do for them, chosen by which act on each
    other. A tighter tolerance asks for more units, and so do inputs that vary beside the start:
    units grow with the square root of their number.
    """
    networks = settings.networks
    if networks == "auto":
        # On Lorenz's system, whose paths turn, own ones were at a ninth of the horizon after 150 s,
        # shared ones at two thirds.
        able = dim > 2 and settings.flow == "monotone" and settings.context != "path"
        networks = "own" if able else "shared"
    own = networks == "own"
    pairs = 2 if own else max(2, math.ceil(math.log2(dim)))
    width = _OWN_WIDTH if own else 8 * min(dim / 2, 2 / dim)
    width *= (3e-3 / settings.tolerance) ** 0.1 * math.sqrt((given or dim) / dim)
    chosen = dataclasses.replace(
        settings,
        networks=networks,
        layers=settings.layers or 2,
        hidden=settings.hidden or max(3, round(width)),
    )
    if settings.layers is not None:
        return chosen
    most = _MOST_OWN if own else _MOST_PARAMETERS
    affordable = most // parameter_count(dim, given or dim, chosen)
    return dataclasses.replace(chosen, layers=2 * max(1, min(pairs, affordable)))


def sampled(settings: Settings, parameters: int) -> Settings:
    """The settings with the number of points filled in, at least twice that of the parameters.

    Networks that are given where paths are have more to learn from points: there it is thrice.
    """
    enough = 3 if settings.context == "path" else 2
    samples = 2 ** math.ceil(math.log2(enough * parameters))
    if samples > _BALANCED and 3 * samples >= 8 * parameters:
        samples = 3 * samples // 4
    return dataclasses.replace(settings, samples=settings.samples or samples)


def parameter_count(dim: int, given: int, settings: Settings) -> int:
    """Parameters of the flow in `dim` dimensions, with `given` numbers known at the start."""
    assert settings.layers is not None
    assert settings.hidden is not None
    context = context_size(dim, given, settings)
    idle = idle_dim_for(dim, settings)
    parts = [(0, dim)] * 2 if idle == 0 else [(idle, dim - idle), (dim - idle, idle)]
    layer = _affine_layer
    if settings.flow == "monotone":
        layer = _own_layer if settings.networks == "own" else _monotone_layer
    pair = sum(layer(idle, moved, context, settings) for idle, moved in parts)
    return settings.layers // 2 * pair


def _monotone_layer(idle: int, moved: int, context: int, settings: Settings) -> int:
    hidden = settings.hidden or 0
    networks = (idle + context + 1, hidden + 1)
    read_out = moved * outputs(settings.bumps)
    quadratic = idle + idle * (idle + 1) // 2
    mixing = (idle + moved) ** 2 if idle + moved > 1 else 0
    return hidden * sum(networks) + read_out * (hidden + 1) + moved * (quadratic + context) + mixing


def _own_layer(idle: int, moved: int, context: int, settings: Settings) -> int:
    hidden, partners = settings.hidden or 0, partner_count(idle)
    given = context - (idle + moved if settings.context == "path" else 0)
    known = (1 + partners) * (2 if settings.context == "path" else 1) + given - idle - moved
    networks = hidden * (partners + known + SHARED + 1) + outputs(settings.bumps) * (hidden + 1)
    paths = known + idle + partners * (partners + 1) // 2
    return SHARED * (idle + context + 1) + moved * (networks + paths)


def _affine_layer(idle: int, moved: int, context: int, settings: Settings) -> int:
    hidden = settings.hidden or 0
    lift = hidden * (idle + context + 1)
    cell = 3 * hidden * (idle + context + hidden + 1) + hidden  # of a GRU
    return lift + cell + 2 * moved * (hidden + 1) + moved
