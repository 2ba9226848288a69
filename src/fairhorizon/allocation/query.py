"""Which items may be on offer to each user at a moment, for shortlists and for rows of scores."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.allocation.item_classes import ItemClasses
from fairhorizon.histories import ItemSets


@dataclass(frozen=True)
class Query:
    """What may be on offer now."""

    of_item: Tensor  # (n_items,) the class of each item
    n_classes: int
    blocked: ItemSets
    closed: Tensor | None = None  # (n_items,) bool: not for anybody
    taken: Tensor | None = None  # (b, k) items not for their user, -1 for none

    @property
    def n_items(self) -> int:
        return len(self.of_item)

    @classmethod
    def of(
        cls,
        classes: ItemClasses,
        blocked: ItemSets,
        closed: Tensor | None = None,
        taken: Tensor | None = None,
    ) -> "Query":
        return cls(classes.of_item, len(classes.cheaper), blocked, closed, taken)

    def on_shortlists(self, rows: Tensor, items: Tensor, scores: Tensor) -> Tensor:
        """Scores of items (b, W), -inf for those that are not on offer."""
        out = (items < 0) | self.blocked.contains(items, rows)
        at = items.clamp(min=0)
        if self.closed is not None:
            out |= self.closed[at]
        if self.taken is not None:
            for taken in self.taken[rows].unbind(1):
                out |= items == taken[:, None]
        return scores.masked_fill(out, -torch.inf)

    def on_rows(self, rows: Tensor, scores: Tensor) -> Tensor:
        """The same of all items (b, n_items)."""
        scores = scores.masked_fill(self.blocked.mask(rows), -torch.inf)
        if self.closed is not None:
            scores.masked_fill_(self.closed, -torch.inf)
        if self.taken is not None:
            for taken in self.taken[rows].unbind(1):
                there = (taken >= 0).nonzero().squeeze(1)
                scores[there, taken[there]] = -torch.inf
        return scores
