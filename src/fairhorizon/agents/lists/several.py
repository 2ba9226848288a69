"""Lists under several limits on all showings: chances of all items, allocated together."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fairhorizon.agents.lists.item_lists import ItemLists
from fairhorizon.agents.served import Served
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.several.conflicts import Supply, check_together
from fairhorizon.allocation.several.guard import RulesGuard
from fairhorizon.allocation.several.joint import lists_under
from fairhorizon.allocation.several.terms import GroupRule, Terms
from fairhorizon.environment.feedback import Scenario
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.exposure.limit_rules import rule_of
from fairhorizon.ranking import rows_at_once

VALUES_AT_ONCE = 2**22


@dataclass(frozen=True)
class SeveralLimits:
    """Chances served under several limits, each on all showings."""

    lists: ItemLists
    limits: tuple[BoundLimit, ...]

    @torch.no_grad()
    def served(self, scenario: Scenario, length: int) -> Served:
        """The lists of all users together."""
        terms = possible_terms(self.limits, length)
        offers, chances = self.offers(scenario, length)
        made = lists_under(offers, terms)
        prices = dict(zip(map(str, self.limits), made.prices, strict=True))
        return valued_lists(made.lists, offers, chances, prices)

    @torch.no_grad()
    def one_by_one(self, scenario: Scenario, length: int, guard: RulesGuard) -> Served:
        """One user at a time, in order of arrival."""
        possible_terms(self.limits, length)
        offers, chances = self.offers(scenario, length)
        lists = guard.serve_all(offers, length)
        return valued_lists(lists, offers, chances, guard.prices_by_name())

    def guard(self) -> RulesGuard:
        """All limits hold after every list, for all that was shown so far."""
        return RulesGuard(rules_of(self.limits))

    def offers(self, scenario: Scenario, length: int) -> tuple[Candidates, Tensor]:
        """All items, with the value of showing each, -inf where it may not be; and the chances.

        Every class of items has its own price, so none of them may be left out.
        """
        values, chances = [], []
        n_items = len(self.lists.sensitive)
        for rows in torch.arange(scenario.n_users).split(rows_at_once(n_items, VALUES_AT_ONCE)):
            some = self.lists.values_of_all(scenario, rows, length)
            values.append(some.values.masked_fill(some.items < 0, -torch.inf))
            chances.append(some.chances)
        items = torch.arange(n_items).expand(scenario.n_users, -1)
        return Candidates(items, torch.cat(values)), torch.cat(chances)


def rules_of(limits: tuple[BoundLimit, ...]) -> tuple[GroupRule, ...]:
    """The limits as allocations keep them."""
    return tuple(GroupRule(rule_of(one.limit), one.members, str(one)) for one in limits)


@lru_cache(maxsize=16)  # a call for one user would mostly wait for these
def possible_terms(limits: tuple[BoundLimit, ...], length: int) -> Terms:
    """What the limits ask of lists; refused where no lists of this length can keep them."""
    terms = Terms.of(rules_of(limits), length)
    items = np.bincount(terms.of_item, minlength=terms.n_classes)
    one_list = np.ones(length, dtype=np.int64)
    check_together(terms, Supply(one_list, np.minimum(items, length)))
    return terms


def valued_lists(
    lists: Tensor, offers: Candidates, chances: Tensor, prices: Mapping[str, float]
) -> Served:
    """Lists with the values and chances of their items, among those of all items."""
    at, none = lists.clamp(min=0), lists < 0
    values, scores = (
        table.gather(1, at).double().masked_fill(none, torch.nan)
        for table in (offers.values, chances)
    )
    return Served.of(lists, values=values, scores=scores, prices=prices)
