"""Paths that are tied to an end, step by step."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from ..transition.transition_density import AbstractTransitionDensity


class AbstractChain(eqx.Module):
    """One step of a proposal, with the logarithm of the target over the proposal."""

    density: AbstractTransitionDensity  # guides to the end
    local: AbstractTransitionDensity  # of one step
    params: dict[str, Array]
    arrival: Float[Array, ""]  # when the path is at its end
    end: Float[Array, " d"]

    @abc.abstractmethod
    def step(
        self, key: PRNGKeyArray, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """New points a time `h` later, `r` being left before, and what log-weights gain."""

    def keywords(self, density: AbstractTransitionDensity, r: Array) -> dict[str, Any]:
        """What a query takes beside the start, a time `r` before the end."""
        return {
            "params": self.params if density.params else None,
            "start_time": self.arrival - r if density.start_time is None else None,
        }
