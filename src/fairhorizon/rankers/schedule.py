"""How long a network is trained, and how its learning rate falls meanwhile."""

import math
from dataclasses import dataclass

WARM_UP = 0.03  # share of the training in which the learning rate rises
FEWEST_STEPS = 1000  # with fewer, a small log would not be learnt in so few epochs


@dataclass(frozen=True)
class Schedule:
    """The learning rate rises from 0 to its highest value and then falls to 0, both linearly.

    Large steps first and small ones at the end reach in a few epochs what a constant learning rate
    reaches in many.
    """

    highest: float
    epochs: int

    def rate(self, passed: float) -> float:
        """`passed`: the epochs so far, 2.5 in the middle of the third."""
        share = passed / self.epochs
        return self.highest * min(share / WARM_UP, (1 - share) / (1 - WARM_UP))


def planned_epochs(epochs: int, max_epochs: int, steps_an_epoch: int) -> int:
    """`epochs`, or more for FEWEST_STEPS steps in all; never more than `max_epochs`."""
    return min(max_epochs, max(epochs, math.ceil(FEWEST_STEPS / steps_an_epoch)))
