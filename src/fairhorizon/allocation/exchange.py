"""What a list gains if one more of its places goes to a group of items."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def exchange_gains(group: Floats, rest: Floats, sizes: NDArray[np.int64]) -> Floats:
    """(b, L) the gain of the c-th place for the group, c = 1, ..., L.

    group, rest: (b, L) values of the best items of the group and of the others, best first, -inf
    where there are no more; sizes: (b,) lengths of the lists. The c-th best of the group replaces
    the (size - c + 1)-th best other, which was the last of them to stay. Infinite where there is no
    such other and the place would be empty; -inf where the group has no c-th item, or c > size.
    """
    replaced = sizes[:, None] - 1 - np.arange(group.shape[1])
    others = np.take_along_axis(rest, replaced.clip(0), axis=1)
    possible = (group > -np.inf) & (replaced >= 0)
    gains: Floats = np.subtract(group, others, out=np.full(group.shape, -np.inf), where=possible)
    return gains
