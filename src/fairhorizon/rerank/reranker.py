"""The interface of re-rankers: a handicap on scores and an allowance per list."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor

from fairhorizon.settings import Settings


class Reranker(Settings, ABC):
    """A re-ranker learns nothing: it is its settings.

    Lists are the best items by score less handicap with at most the allowance of sensitive ones.
    Both are fixed when a user's list begins, so that a list served item by item equals the list
    served at once, unless feedback changes the scores in between.
    """

    method: ClassVar[str]
    level_is_share: ClassVar[bool] = True  # its level is a largest share for the group

    @abstractmethod
    def at_level(self, level: float) -> Self:
        """The same re-ranker at another level of fairness."""

    def handicap(
        self,
        scores: Tensor,  # (b, n_items), -inf where an item may not be shown
        sensitive: Tensor,  # (n_items,) bool, G0
        generator: torch.Generator,  # noqa: ARG002  # for those that draw
    ) -> Tensor:
        """(b, n_items), or broadcast to it: subtracted from the scores; inf: never shown."""
        return torch.zeros(len(sensitive), device=scores.device)

    def allowance(self, length: int) -> int:
        """The largest number of sensitive items in a list of this length."""
        return length

    def share_limit(self, sensitive: Tensor) -> float:  # noqa: ARG002  # for those that have one
        """alpha': the intended largest share of sensitive items in all showings."""
        return 1.0
