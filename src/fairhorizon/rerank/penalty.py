"""A price on sensitive items: the same number is subtracted from each of their scores."""

from typing import Annotated, Self

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.rerank.reranker import UserReranker


class Penalty(UserReranker):
    """Penalty: the same number is subtracted from the score of every sensitive item.

    It is `weight` standard deviations of the user's scores, because rankers differ in the scale of
    their scores.
    """

    method = "penalty"
    level_is_share = False

    weight: Annotated[float, Field(ge=0)] = 1.0
    """Penalty on every sensitive item, in standard deviations of the user's scores."""

    def at_level(self, level: float) -> Self:
        return self.model_validate({"weight": level})

    def handicap(
        self,
        scores: Tensor,
        sensitive: Tensor,
        generator: torch.Generator,  # noqa: ARG002
    ) -> Tensor:
        # Mean and deviation over the items that may be shown; the others have a score of -inf.
        allowed = scores.isfinite()
        n = allowed.sum(1, keepdim=True).clamp(min=1)
        known = scores.where(allowed, 0.0)
        mean = known.sum(1, keepdim=True) / n
        spread = ((known - mean).where(allowed, 0.0).square().sum(1, keepdim=True) / n).sqrt()
        return self.weight * spread * sensitive
