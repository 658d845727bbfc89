"""The flowjax coupling flow that others are compared with."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr


def spline_flow() -> Any:
    """Six rational quadratic spline layers of width 32 in two dimensions, given a start."""
    from flowjax.bijections import RationalQuadraticSpline
    from flowjax.distributions import Normal
    from flowjax.flows import coupling_flow

    return coupling_flow(
        jr.key(3),
        base_dist=Normal(jnp.zeros(2)),
        transformer=RationalQuadraticSpline(knots=8, interval=5),
        cond_dim=2,
        flow_layers=6,
        nn_width=32,
    )
