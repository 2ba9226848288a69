"""Exploration with known probabilities: one place of some lists goes to another item.

With the share `explore` of lists, one of the n places is drawn, and then one of m items: the one
that was chosen for it and the best that are in the same groups and in no other place. So no limit
counts anything else, and the probability of each showing is known:

    1 - explore (m - 1) / (n m)    of the item that was chosen for a place
    explore / (n m)                of each of the others
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairhorizon.allocation.guard import GuardedList

OTHERS = 20  # items that a place may go to instead

Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Explored:
    """A list after its draw, and the probability of every showing in it."""

    items: Codes
    propensities: list[float]


def explored(chosen: GuardedList, explore: float, draws: np.random.Generator) -> Explored:
    """Draw what is shown in place of a list that was chosen."""
    items, n = chosen.items.copy(), len(chosen.items)
    pools = [chosen.spares(kind, OTHERS) for kind in chosen.classes]
    chances = [1 - explore * len(pool) / (n * (len(pool) + 1)) for pool in pools]
    if n and draws.random() < explore:
        place = int(draws.integers(n))
        pool = pools[place]
        pick = int(draws.integers(len(pool) + 1))
        if pick:
            items[place] = pool[pick - 1]
            chances[place] = explore / (n * (len(pool) + 1))
    return Explored(items, chances)
