"""How often items are shown, as shards tell each other: only what has changed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Change:
    """By how much the showings of some items have changed."""

    items: NDArray[np.int32]
    by: NDArray[np.int32]

    @classmethod
    def of(cls, counts: Counts) -> "Change":
        """From the change of every item (n_items,)."""
        (items,) = counts.nonzero()
        return cls(items.astype(np.int32), counts[items].astype(np.int32))

    def add_to(self, counts: Counts) -> None:
        counts[self.items] += self.by


def counted(items: Tensor, n_items: int) -> Counts:
    """(n_items,) how often each of the items is there."""
    return np.bincount(items.cpu().numpy(), minlength=n_items)


def together(changes: Sequence[Change], n_items: int) -> Counts:
    """(n_items,) the sum of the changes."""
    counts = np.zeros(n_items, dtype=np.int64)
    for change in changes:
        change.add_to(counts)
    return counts
