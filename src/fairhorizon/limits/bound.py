"""A limit and the items that it is about."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairhorizon.limits.language import POPULAR, GroupOf, Limit


@dataclass(frozen=True, eq=False)
class BoundLimit:
    """A limit on the items of some data."""

    limit: Limit
    members: NDArray[np.bool_]  # (n_items,) of the group at the beginning; all items for gini

    @property
    def moves(self) -> bool:
        """Whether exposure changes who is in the group."""
        return self.limit.group == GroupOf(POPULAR)

    def __str__(self) -> str:
        return str(self.limit)
