"""How many parameters a flow has, from its settings alone.

Files are checked with it before anything is built from what they say.
"""

from .build import idle_dim_for
from .settings import Settings


def parameter_count(dim: int, context: int, settings: Settings) -> int:
    """Parameters of the flow in `dim` dimensions, with `context` numbers given at the start."""
    assert settings.layers is not None
    assert settings.hidden is not None
    idle = idle_dim_for(dim, settings)
    parts = [(0, dim)] * 2 if idle == 0 else [(idle, dim - idle), (dim - idle, idle)]
    layer = _monotone_layer if settings.flow == "monotone" else _affine_layer
    pair = sum(layer(idle, moved, context, settings) for idle, moved in parts)
    return settings.layers // 2 * pair


def _monotone_layer(idle: int, moved: int, context: int, settings: Settings) -> int:
    hidden = settings.hidden or 0
    networks = (idle + context + 1, hidden + 1)
    read_out = moved * (2 + 3 * settings.bumps)
    quadratic = idle + idle * (idle + 1) // 2
    mixing = (idle + moved) ** 2 if idle + moved > 1 else 0
    return hidden * sum(networks) + read_out * (hidden + 1) + moved * (quadratic + context) + mixing


def _affine_layer(idle: int, moved: int, context: int, settings: Settings) -> int:
    hidden = settings.hidden or 0
    lift = hidden * (idle + context + 1)
    cell = 3 * hidden * (idle + context + hidden + 1) + hidden  # of a GRU
    return lift + cell + 2 * moved * (hidden + 1) + moved
