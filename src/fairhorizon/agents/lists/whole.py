"""Whole lists under the limits of a model: under one, or under several on all showings."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from fairhorizon.agents.lists.item_lists import ItemLists
from fairhorizon.agents.lists.limited import served_lists, under_limits
from fairhorizon.agents.lists.several import SeveralLimits
from fairhorizon.agents.served import Served
from fairhorizon.allocation.request_guard import ExposureGuard
from fairhorizon.allocation.several.guard import RequestGuard, RulesGuard
from fairhorizon.environment.feedback import Scenario
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.exposure.kept_by_lists import are_several


@dataclass(frozen=True)
class WholeLists:
    """Chances served under limits.

    plain: the chances, and the level that counts where there are no limits.
    level: that level in words, for its price.
    """

    plain: ItemLists
    limits: tuple[BoundLimit, ...]
    level: str

    @cached_property
    def under_one(self) -> ItemLists:
        return under_limits(self.plain, self.limits)

    @cached_property
    def several(self) -> SeveralLimits | None:
        return SeveralLimits(self.plain, self.limits) if are_several(self.limits) else None

    def served(self, scenario: Scenario, length: int) -> Served:
        """All users together, each with the whole list at once."""
        if self.several is not None:
            return self.several.served(scenario, length)
        return served_lists(self.under_one.valued(scenario, length), self.limits, self.level)

    def interactive(self, scenario: Scenario, length: int) -> Tensor:
        """Item by item, under at most one limit."""
        return self.under_one.interactive(scenario, length)

    def guard(self, first_price: Callable[[ItemLists], float]) -> RequestGuard:
        """What keeps the limits over requests; of one limit, the first price is asked for."""
        if self.several is not None:
            return self.several.guard()
        return ExposureGuard(self.under_one.rule, price=first_price(self.under_one))

    def one_by_one(self, scenario: Scenario, length: int, guard: RequestGuard) -> Served:
        """One user after the other, counted by the guard."""
        if self.several is not None:
            assert isinstance(guard, RulesGuard)
            return self.several.one_by_one(scenario, length, guard)
        assert isinstance(guard, ExposureGuard)
        valued = self.under_one.one_by_one(scenario, length, guard)
        return served_lists(valued, self.limits, self.level)
