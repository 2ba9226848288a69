"""A quota: at most q K of the K items of every list are sensitive."""

from typing import Annotated, Self

from pydantic import Field
from torch import Tensor

from fairhorizon.metrics.shares import whole_showings
from fairhorizon.rerank.reranker import UserReranker


class Quota(UserReranker):
    """Quota: at most a share of every list is sensitive items, the best ones by score."""

    method = "quota"

    share: Annotated[float, Field(ge=0, le=1)] = 0.4
    """Largest share of every list that may be sensitive items (q)."""

    def at_level(self, level: float) -> Self:
        return self.model_validate({"share": level})

    def allowance(self, length: int) -> int:
        # Rounded down: a quota of 40 % of 5 places are 2, of 4 places 1.
        return whole_showings(self.share * length)

    def share_limit(self, sensitive: Tensor) -> float:  # noqa: ARG002
        return self.share
