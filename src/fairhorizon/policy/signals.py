"""What an actor sees of the items: an item's score is a row of W times the item's signals."""

from dataclasses import dataclass
from typing import Protocol as Interface

from torch import Tensor


class Signals(Interface):
    """The signals of all items, for a batch of users in their present states."""

    def scores(self, weights: Tensor) -> Tensor:
        """(b, n_items), a tensor of its own, from one row of W for each user (b, signals)."""

    def refresh(self, rows: Tensor, users: Tensor, queues: Tensor) -> None:
        """The users at these rows of the batch are in another state now."""

    def relabel(self, sensitive: Tensor) -> None:
        """The groups are others now."""


@dataclass(frozen=True)
class ItemVectors:
    """The embeddings: the same for everybody in any state, so that W_k points at an ideal item."""

    vectors: Tensor  # (n_items, d)

    def scores(self, weights: Tensor) -> Tensor:
        return weights @ self.vectors.T

    def refresh(self, rows: Tensor, users: Tensor, queues: Tensor) -> None:
        pass

    def relabel(self, sensitive: Tensor) -> None:
        pass
