"""What a policy sees of the items: features of each item, and the candidates of each user."""

from typing import Protocol as Interface

from torch import Tensor

from fairhorizon.histories import ItemSets
from fairhorizon.rankers.candidates import CandidateSet


class ItemFeatures(Interface):
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


class FeatureSource(Interface):
    """The items as an actor sees them; a row of W has a number for each signal of an item."""

    @property
    def n_signals(self) -> int:
        """Features of an item; where it is `priced`, the last one is its group."""

    @property
    def priced(self) -> bool:
        """Whether the actor sees the group of an item and so has a price for it."""

    @property
    def least_on_menu(self) -> float:
        """The smallest number of items of either group on a menu, if there are as many."""

    def remember(self, queues: Tensor) -> Tensor:
        """The part of the queues that the encoder reads."""

    def look(self, users: Tensor, queues: Tensor, sensitive: Tensor) -> ItemFeatures:
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
