"""Joint allocation: the lists of all users together have the highest value under the limit."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from torch import Tensor

from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.limits.supported import SupportedLimits
from fairhorizon.rerank.reranker import JointReranker


class ListAllocation(JointReranker):
    """Joint allocation, as FCPO serves: of all lists within the limit, those of the highest value.

    The value of an item is the chance that the user takes it, a softmax of the ranker's scores,
    calibrated on the validation items. The limit is on all showings together: users who gain the
    most by sensitive items are shown more of them.
    """

    method = "lists"
    in_long_run = False
    supported_limits = SupportedLimits.JOINT

    spread: Annotated[float | None, Field(gt=0, le=1)] = 0.99
    """Largest Gini index of the lists, relative to the lists of the ranker's plain scores at the
    same limit; None: no bound."""
    candidates: Annotated[int, Field(ge=1)] = 40
    """Best items of each group from which the lists of a user are made."""
    rule: PlaceRule | None = None
    """How the limit counts: by place, or in every list; its share is `share`. None: all showings
    together, all alike."""

    @model_validator(mode="before")
    @classmethod
    def _share_of_the_rule(cls, given: Any) -> Any:
        rule = given.get("rule") if isinstance(given, dict) else None
        if isinstance(rule, PlaceRule) and "share" not in given:
            return {**given, "share": rule.share}
        return given

    @property
    def place_rule(self) -> PlaceRule:
        return PlaceRule(self.share) if self.rule is None else self.rule.at(self.share)

    def at_level(self, level: float) -> Self:
        rule = None if self.rule is None else self.rule.at(level)
        return self.model_validate({**self.model_dump(), "share": level, "rule": rule})

    def share_limit(self, sensitive: Tensor) -> float:
        # A floor lets the group have everything.
        floor = self.rule is not None and self.rule.is_floor
        return 1.0 if floor else super().share_limit(sensitive)
