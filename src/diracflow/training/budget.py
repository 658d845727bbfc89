"""How much error a step may make, and how long the next one should be."""

import math

import equinox as eqx


class Budget(eqx.Module):
    r"""A share of the tolerance for every step.

    A step over a share $h$ of the clock may make an error of `total` times $h + $ `allowance`. The
    allowance is for short steps near the start, where the parameters find their course: without it
    the loop crawls there. With an infinite one every step may make an error of `total`.
    """

    total: float
    allowance: float

    def share(self, length: float) -> float:
        """Error allowed in a step over the share `length` of the clock, in nats."""
        if math.isinf(self.allowance):
            return self.total
        return self.total * (length + self.allowance)

    def next_length(self, length: float, error: float) -> float:
        """Length at which the error would meet its share, with the usual safeguards."""
        ratio = max(error / self.share(length), 1e-6)
        # The error falls with the third power of the length, its share with the first at most.
        order = 3 - length / (length + self.allowance)
        return length * min(2.0, max(0.2, 0.8 * ratio ** (-1 / order)))
