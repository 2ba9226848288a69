"""Step control: in every step all users together are served within what is left of the limits."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fairhorizon.limits.supported import SupportedLimits
from fairhorizon.rerank.reranker import JointReranker


class StepControl(JointReranker):
    """Step control, as FCPO serves in the long run: limits hold after every step.

    Of all lists of a step within the budgets of the limits, those with the highest sum of
    standardised scores are shown. In a long run rules of diversity can change the scores: `mmr` or
    `kind_quota`, by the kinds of items.
    """

    method = "control"
    keeps_limits = True
    supported_limits = SupportedLimits.STEPS

    mmr: Annotated[float, Field(ge=0)] = 0.0
    """What the standardised score of an item loses if the user was shown an item of the same kinds
    in the step before; 0: nothing."""
    forgetting: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Part of a showing that `mmr` still counts one step later."""
    kind_quota: Annotated[int, Field(ge=1)] | None = None
    """How many of `window` showings in a row to a user may have the same main kind, unless nothing
    else may be shown; none: all of them."""
    window: Annotated[int, Field(ge=2)] = 10
    """Number of showings in a row that `kind_quota` is about."""

    @model_validator(mode="after")
    def _closes_something(self) -> Self:
        if self.kind_quota is not None and self.kind_quota >= self.window:
            raise ValueError(
                f"kind_quota={self.kind_quota} of a window of {self.window} closes nothing (give "
                "less than window)"
            )
        return self

    @property
    def needs_kinds(self) -> bool:
        return self.mmr > 0 or self.kind_quota is not None

    def stated(self) -> dict[str, Any]:
        # Settings that do nothing are left out, so that they do not make two equal methods look
        # different.
        idle = set[str]()
        if self.mmr == 0:
            idle |= {"mmr", "forgetting"}
        if self.kind_quota is None:
            idle |= {"kind_quota", "window"}
        return self.model_dump(mode="json", exclude=idle)
