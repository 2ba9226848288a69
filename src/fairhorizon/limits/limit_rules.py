"""From a limit in the language of limits to the rule that allocations and measures go by."""

from fairhorizon.limits.language import Limit
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.vocabulary import Weighing


def rule_of(limit: Limit) -> PlaceRule:
    """The limit on a group as allocations keep it."""
    by_place = {Weighing.NONE: PlaceWeights.NONE, Weighing.LOG: PlaceWeights.LOG}
    weights = by_place.get(limit.weighing, limit.weights)
    return PlaceRule(limit.share, limit.is_floor, limit.scope, weights, limit.first)
