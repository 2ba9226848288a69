"""What an actor sees of the items: their signals, and which of them are on a menu."""

import math
from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.policy.encoder import StateEncoder
from fairhorizon.policy.history import HistoryEncoder
from fairhorizon.policy.signals import ItemVectors, Signals
from fairhorizon.rankers.candidates import CandidateSet, CatalogueCandidates


class ItemView(Interface):
    """The items as an actor sees them; a row of W has a number for each signal of an item."""

    @property
    def n_signals(self) -> int:
        """Signals of an item; where it is `priced`, the last one is its group."""

    @property
    def priced(self) -> bool:
        """Whether the actor sees the group of an item and so has a price for it."""

    @property
    def least_on_menu(self) -> float:
        """The smallest number of items of either group on a menu, if there are as many."""

    def remember(self, queues: Tensor) -> Tensor:
        """The part of the queues that the encoder reads."""

    def look(self, users: Tensor, queues: Tensor, sensitive: Tensor) -> Signals:
        """The signals of all items for these users in these states."""

    def menus(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor, at_least: int = 0
    ) -> CandidateSet:
        """The items that a policy may choose from in these states, none of them blocked.

        At least `at_least` items of either group, if there are as many.
        """

    def everything(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor
    ) -> CandidateSet:
        """Menus of all items in the order of their codes, -1 for blocked ones."""


@dataclass(frozen=True)
class EmbeddedItems:
    """Items by the embeddings of an encoder, the same for all users; all are on every menu."""

    encoder: StateEncoder | HistoryEncoder
    priced: bool = False

    @property
    def n_signals(self) -> int:
        return self.encoder.item_vectors.shape[1] + self.priced

    @property
    def least_on_menu(self) -> float:
        return math.inf

    def remember(self, queues: Tensor) -> Tensor:
        return queues

    def look(self, users: Tensor, queues: Tensor, sensitive: Tensor) -> ItemVectors:  # noqa: ARG002
        return ItemVectors(self.encoder.item_vectors[:-1], sensitive if self.priced else None)

    def menus(
        self,
        users: Tensor,
        queues: Tensor,
        blocked: Tensor,
        sensitive: Tensor,
        at_least: int = 0,  # noqa: ARG002
    ) -> CatalogueCandidates:
        items = torch.arange(blocked.shape[1]).to(blocked.device).expand(blocked.shape)
        vectors = self.look(users, queues, sensitive).vectors
        return CatalogueCandidates(items.masked_fill(blocked, -1), vectors)

    def everything(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor
    ) -> CatalogueCandidates:
        return self.menus(users, queues, blocked, sensitive)
