"""Serving under a limit that counts showings by place or by list."""

from dataclasses import replace

from fairhorizon.agents.base import Recommender
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.ranked.model import Ranked
from fairhorizon.allocation.place_rule import PlaceRule, PlaceWeights, Scope
from fairhorizon.errors import ConfigError
from fairhorizon.exposure.limits import Limit
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.vocabulary import Weighing


def served_under(model: Recommender, counting: Limit, share: float | None) -> Recommender:
    """The fitted model at this share, counted as by the limit.

    The one place to change once recommenders take limits as they are: `model.under(...)`.
    """
    rule = rule_of(counting if share is None else replace(counting, share=share))
    match model:
        case Fcpo():
            return model.under(rule)
        case Ranked(reranker=ListAllocation() as lists):
            ruled = {**lists.model_dump(), "share": rule.share, "rule": rule}
            return model.reranked(ListAllocation.model_validate(ruled))
    raise ConfigError(
        f"{model.method} cannot count showings as {counting} does (take fcpo or NAME+lists)"
    )


def rule_of(limit: Limit) -> PlaceRule:
    """How lists are made under the limit."""
    weights: PlaceWeights | tuple[float, ...] = limit.weights
    if limit.weighing is not Weighing.GIVEN:
        weights = PlaceWeights(limit.weighing.value)
    return PlaceRule(limit.share, limit.is_floor, Scope(limit.scope.value), weights, limit.first)
