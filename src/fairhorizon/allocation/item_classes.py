"""Classes of items that cost the same under every limit, what is on offer, and each user's best
item of each."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.errors import ModelError
from fairhorizon.histories import ItemSets
from fairhorizon.ranking import first_highest, some_at_a_time

Floats = NDArray[np.float64]
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class ItemClasses:
    """A class is all items with the same costs."""

    patterns: Floats  # (m, C) costs of the classes
    of_item: Tensor  # (n_items,) the class of each item
    cheaper: Tensor  # (C, C) bool: the second is cheaper than the first in some way

    @classmethod
    def of(cls, costs: Floats, device: torch.device) -> "ItemClasses":
        """By costs (m, n_items) that are -1, 0 or 1."""
        # a number in base 3, because that sorts fast
        codes = 3 ** np.arange(len(costs)) @ (costs.astype(np.int64) + 1)
        _, examples, of_item = np.unique(codes, return_index=True, return_inverse=True)
        patterns: Floats = costs[:, examples]
        cheaper = (patterns[:, None, :] < patterns[:, :, None]).any(0)
        return cls(
            patterns, torch.from_numpy(of_item).to(device), torch.from_numpy(cheaper).to(device)
        )

    @property
    def n_items(self) -> int:
        return len(self.of_item)

    def each_in_question(self) -> "ItemClasses":
        """The same where a user may be refused the best item: then any class may be next."""
        others = ~torch.eye(len(self.cheaper), dtype=torch.bool, device=self.cheaper.device)
        return replace(self, cheaper=others)


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


def best_of_classes(
    scores: Tensor, handicap: Tensor, classes: ItemClasses, taken: Tensor
) -> tuple[Tensor, Tensor]:
    """(b, C) the highest score of each class of items, less the handicap (n_items,), and its item.

    A class that is not `cheaper` in any way than that of the best item of all is left at -inf: it
    is never better. Items `taken` (b, k) are excluded.
    """
    of_item, cheaper = classes.of_item, classes.cheaper
    values = scores.new_full((len(scores), len(cheaper)), -torch.inf)
    items = of_item.new_zeros(values.shape)
    others = of_item != torch.arange(len(cheaper)).to(of_item)[:, None]  # (C, n_items)
    outside = scores.new_zeros(others.shape).masked_fill_(others, -torch.inf)
    handicapped = bool(handicap.any())
    for part, part_values, part_items, part_taken in some_at_a_time(
        scores.detach(), values, items, taken
    ):
        if handicapped:
            part = part - handicap
        if taken.shape[1]:
            part = without(part, part_taken)
        best = first_highest(part)[:, None]
        kind = of_item[best]
        part_values.scatter_(1, kind, part.gather(1, best))  # views: this fills `values`
        part_items.scatter_(1, kind, best)
        for c in range(len(cheaper)):
            some = cheaper[kind[:, 0], c].nonzero().squeeze(1)
            if len(some):
                room = part.index_select(0, some).add_(outside[c])
                best = first_highest(room)[:, None]
                part_values[:, c].index_copy_(0, some, room.gather(1, best).squeeze(1))
                part_items[:, c].index_copy_(0, some, best.squeeze(1))
    if values.isnan().any():
        raise ModelError("a score is not a number: the model that scores has diverged")
    return values, items


def without(scores: Tensor, taken: Tensor) -> Tensor:
    """-inf for the items `taken`, of which -1 is none."""
    ceiling = scores.new_full(taken.shape, torch.inf).masked_fill_(taken >= 0, -torch.inf)
    return scores.scatter_reduce(1, taken.clamp(min=0), ceiling, "amin")
