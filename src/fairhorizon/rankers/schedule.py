"""How long a network is trained, and how its learning rate falls meanwhile."""

import math
from dataclasses import dataclass

WARM_UP = 0.03  # share of the training in which the learning rate rises
FEWEST_STEPS = 1500  # with fewer, a small log would not be learnt in so few epochs


@dataclass(frozen=True)
class Recipe:
    """What a kind of network is trained with, other than its settings."""

    # passes over the log in which the learning rate falls to 0, more over a log of few windows;
    # None: a constant learning rate, up to max_epochs
    epochs: int | None
    betas: tuple[float, float]  # of Adam
    average_decay: float  # per step, of the moving average of the weights
    all_items_at_most: int  # for more items the loss uses a sample


# averages about 200 steps
STEADY = Recipe(epochs=None, betas=(0.9, 0.999), average_decay=0.995, all_items_at_most=8192)
# A few epochs: Adam and the average, of about 100 steps, follow faster. Self-attention ranked worse
# when trained like this.
FALLING = Recipe(epochs=10, betas=(0.9, 0.98), average_decay=0.99, all_items_at_most=1024)


@dataclass(frozen=True)
class Schedule:
    """The learning rate is constant, or rises from 0 to its highest value and then falls to 0.

    Both are linear. Large steps first and small ones at the end reach in a few epochs what a
    constant learning rate reaches in many.
    """

    highest: float
    epochs: int
    falling: bool = True

    def rate(self, passed: float) -> float:
        """`passed`: the epochs so far, 2.5 in the middle of the third."""
        if not self.falling:
            return self.highest
        share = passed / self.epochs
        return self.highest * min(share / WARM_UP, (1 - share) / (1 - WARM_UP))


def planned_epochs(epochs: int, max_epochs: int, steps_an_epoch: int) -> int:
    """`epochs`, or more for FEWEST_STEPS steps in all; never more than `max_epochs`."""
    return min(max_epochs, max(epochs, math.ceil(FEWEST_STEPS / steps_an_epoch)))
