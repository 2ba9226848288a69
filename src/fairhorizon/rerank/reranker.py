"""The interfaces of re-rankers, which make lists of a ranker's scores that show a group less."""

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.limits.supported import SupportedLimits
from fairhorizon.settings import Settings


class Reranker(Settings, ABC):
    """A re-ranker learns nothing: it is its settings."""

    method: ClassVar[str]
    level_is_share: ClassVar[bool] = True  # its level is a largest share for the group
    keeps_limits: ClassVar[bool] = False  # any limits, at every step of a long run
    in_long_run: ClassVar[bool] = True  # it can serve there
    supported_limits: ClassVar[SupportedLimits | None] = None  # None: its level, if that is a share

    @abstractmethod
    def at_level(self, level: float) -> Self:
        """The same re-ranker at another level of fairness."""

    def share_limit(self, sensitive: Tensor) -> float:  # noqa: ARG002  # for those that have one
        """alpha': the intended largest share of sensitive items in all showings."""
        return 1.0

    @property
    def needs_kinds(self) -> bool:
        """Whether it serves by kinds of items, in a long run."""
        return False

    def stated(self) -> dict[str, Any]:
        """Its settings in JSON; those that do nothing may be left out."""
        return self.model_dump(mode="json")


class UserReranker(Reranker):
    """Makes the list of every user by itself, by a handicap on scores and an allowance per list.

    Lists are the best items by score less handicap with at most the allowance of sensitive ones.
    Both are fixed when a user's list begins, so that a list served item by item equals the list
    served at once, unless feedback changes the scores in between.
    """

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


class JointReranker(Reranker):
    """Makes the lists of all users together: the limit is on all showings, not on every list.

    How it serves is in `recommenders/ranked`: it needs the users and what they answer.
    """

    share: Annotated[float, Field(ge=0, le=1)] = 0.4
    """Largest share of all showings that may be sensitive items."""

    def at_level(self, level: float) -> Self:
        return self.model_validate({**self.model_dump(), "share": level})

    def share_limit(self, sensitive: Tensor) -> float:  # noqa: ARG002
        return self.share
