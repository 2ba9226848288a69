"""Signals of the items: an item's score is a row of W times the item's signals."""

from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.histories import ItemSets
from fairhorizon.rankers.candidates import CandidateSet, CatalogueCandidates


class Signals(Interface):
    """The signals of all items, for a batch of users in their present states."""

    def scores(self, weights: Tensor) -> Tensor:
        """(b, n_items), a new tensor, from one row of W for each user (b, signals)."""

    def refresh(self, rows: Tensor, users: Tensor, queues: Tensor) -> None:
        """Recompute the signals of the users at these rows, who are in new states."""

    def relabel(self, sensitive: Tensor) -> None:
        """Update the groups."""

    def on_menus(self, rows: Tensor, blocked: ItemSets, count: int) -> Tensor:
        """(rows, C) items for the menus of the users at these rows, none of the `blocked`.

        The `count` best of either group, by what the signals know of an item; -1 where there are
        fewer. C is the same at every call.
        """

    def offer(self, items: Tensor, shown: Tensor) -> CandidateSet:
        """The menus of all users, with the present groups: items (b, C), and those of the lists
        shown (b, K) that are not among them."""


class ItemVectors:
    """The embeddings: the same for all users in any state, so that W_k points at an ideal item.

    With groups, an item has one more coordinate, -1 in G0: its weight in W_k is the price of
    showing a sensitive item.
    """

    def __init__(self, vectors: Tensor, sensitive: Tensor | None = None) -> None:
        self.vectors = vectors  # (n_items, d), or d + 1 with the groups
        self.priced = sensitive is not None
        if sensitive is not None:
            self.vectors = torch.cat([vectors, -sensitive.to(vectors)[:, None]], dim=1)

    def scores(self, weights: Tensor) -> Tensor:
        return weights @ self.vectors.T

    def refresh(self, rows: Tensor, users: Tensor, queues: Tensor) -> None:
        pass

    def relabel(self, sensitive: Tensor) -> None:
        if self.priced:
            self.vectors[:, -1] = -sensitive.to(self.vectors)

    def on_menus(self, rows: Tensor, blocked: ItemSets, count: int) -> Tensor:  # noqa: ARG002
        """All that are not blocked: they are scored together anyway."""
        items = torch.arange(len(self.vectors)).to(rows).expand(len(rows), -1)
        return items.masked_fill(blocked.mask(rows), -1)

    def offer(self, items: Tensor, shown: Tensor) -> CatalogueCandidates:  # noqa: ARG002
        if not self.priced:
            return CatalogueCandidates(items, self.vectors)
        groups = self.vectors[:, -1].expand(items.shape).clone()
        return CatalogueCandidates(items, self.vectors[:, :-1], groups)
