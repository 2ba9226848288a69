"""What every re-ranker has in common: a handicap on scores and an allowance per list."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor

from fairhorizon.settings import Settings


class Reranker(Settings, ABC):
    """A re-ranker learns nothing: it is its settings.

    Lists are the best items by score less handicap with at most the allowance of sensitive ones.
    Both are fixed when a user's list begins, so that a list handed out item by item is the list
    handed out at once, unless feedback has changed the scores in between.
    """

    method: ClassVar[str]
    level_is_share: ClassVar[bool] = True  # its level is a largest share for the group

    @abstractmethod
    def at_level(self, level: float) -> Self:
        """The same re-ranker with its fairness dial at `level`."""

    def handicap(
        self,
        scores: Tensor,  # (b, n_items), -inf where an item may not be shown
        sensitive: Tensor,  # (n_items,) bool, G0
        generator: torch.Generator,  # noqa: ARG002  # for those that draw
    ) -> Tensor:
        """(b, n_items) or what broadcasts to it, to be taken off the scores; inf: never shown."""
        return torch.zeros(len(sensitive), device=scores.device)

    def allowance(self, length: int) -> int:
        """How many sensitive items a list of this length may have."""
        return length

    def share_limit(self, sensitive: Tensor) -> float:  # noqa: ARG002  # for those that have one
        """alpha': the largest share of sensitive items that is meant to be shown."""
        return 1.0
