"""Menus: the items that a policy may choose from in a state, each with its signals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol as Interface
from typing import Self

import torch
from torch import Tensor


class Menus(Interface):
    """The menus of m states, C items each; a row of W times an item's signals is its logit."""

    @property
    def items(self) -> Tensor:
        """(m, C) item codes, -1 where there is none."""

    def logits(self, weights: Tensor) -> Tensor:
        """(m, K, C) from K rows of W for each state, (m, K, signals)."""

    def pull(self, by_logits: Tensor) -> Tensor:
        """(m, K, signals): the transpose of `logits`, applied to (m, K, C)."""

    def take(self, states: Tensor) -> Self:
        """The menus of some of the states."""

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The menus of several batches of states as one."""


@dataclass(frozen=True)
class SignalMenus:
    """A few items, with different signals in every state."""

    items: Tensor  # (m, C)
    signals: Tensor  # (m, C, signals)

    def logits(self, weights: Tensor) -> Tensor:
        return weights @ self.signals.transpose(1, 2)

    def pull(self, by_logits: Tensor) -> Tensor:
        return by_logits @ self.signals

    def take(self, states: Tensor) -> "SignalMenus":
        return SignalMenus(self.items[states], self.signals[states])

    def to(self, device: torch.device) -> "SignalMenus":
        return SignalMenus(self.items.to(device), self.signals.to(device))

    @classmethod
    def join(cls, parts: "Sequence[SignalMenus]") -> "SignalMenus":
        return cls(torch.cat([p.items for p in parts]), torch.cat([p.signals for p in parts]))


@dataclass(frozen=True)
class CatalogueMenus:
    """All items, with the same vectors in every state, but for the group, which may change."""

    items: Tensor  # (m, n_items)
    vectors: Tensor  # (n_items, signals), without the group where that has its own table
    groups: Tensor | None = None  # (m, n_items) the last signal of each item in each state

    def logits(self, weights: Tensor) -> Tensor:
        if self.groups is None:
            return weights @ self.vectors.T
        by_vectors = weights[..., :-1] @ self.vectors.T
        return by_vectors + weights[..., -1:] * self.groups[:, None]

    def pull(self, by_logits: Tensor) -> Tensor:
        pulled = by_logits @ self.vectors
        if self.groups is None:
            return pulled
        last = (by_logits * self.groups[:, None]).sum(2, keepdim=True)
        return torch.cat([pulled, last], dim=2)

    def take(self, states: Tensor) -> "CatalogueMenus":
        groups = None if self.groups is None else self.groups[states]
        return CatalogueMenus(self.items[states], self.vectors, groups)

    @classmethod
    def join(cls, parts: "Sequence[CatalogueMenus]") -> "CatalogueMenus":
        groups = [part.groups for part in parts if part.groups is not None]
        items = torch.cat([part.items for part in parts])
        return cls(items, parts[0].vectors, torch.cat(groups) if groups else None)


def best_of_groups(
    scores: Sequence[Tensor], blocked: Tensor, sensitive: Tensor, count: int
) -> Tensor:
    """(b, C) the items that any of several scores (b, n_items) ranks among the `count` best of
    their group; -1 for blocked items and repeats."""
    chosen = [torch.empty(len(blocked), 0, dtype=torch.int64, device=blocked.device)]
    for group in (sensitive.nonzero().squeeze(1), (~sensitive).nonzero().squeeze(1)):
        closed = blocked.index_select(1, group)
        for values in scores:
            open_values = values.index_select(1, group).masked_fill_(closed, -torch.inf)
            best, at = open_values.topk(min(count, len(group)), dim=1, sorted=False)
            chosen.append(group[at].masked_fill_(best == -torch.inf, -1))
    return distinct(torch.cat(chosen, dim=1))


def distinct(items: Tensor) -> Tensor:
    """The items (b, C) in the order of their codes, -1 for repeats."""
    items = items.sort(dim=1).values
    items[:, 1:].masked_fill_(items[:, 1:] == items[:, :-1], -1)
    return items
