"""Lists under several limits on all showings: chances of all items, allocated together."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fairhorizon.agents.lists.item_lists import ItemLists
from fairhorizon.agents.served import Served, on_lists
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
VALUES_KEPT = 2**26  # of users times items: 768 MiB with chances and codes


@dataclass(frozen=True)
class SeveralLimits:
    """Chances served under several limits, each on all showings."""

    lists: ItemLists
    limits: tuple[BoundLimit, ...]

    @torch.no_grad()
    def served(self, scenario: Scenario, length: int) -> Served:
        """The lists of all users together."""
        terms = possible_terms(self.limits, length)
        offers, chances = self.offers(scenario, length, terms, scenario.n_users)
        made = lists_under(offers, terms)
        prices = dict(zip(map(str, self.limits), made.prices, strict=True))
        return valued_lists(made.lists, offers, chances, prices)

    @torch.no_grad()
    def one_by_one(self, scenario: Scenario, length: int, guard: RulesGuard) -> Served:
        """One user at a time, in order of arrival."""
        terms = possible_terms(self.limits, length)
        offers, chances = self.offers(scenario, length, terms, scenario.n_users)
        lists = guard.serve_all(offers, length)
        return valued_lists(lists, offers, chances, guard.prices_by_name())

    def guard(self) -> RulesGuard:
        """All limits hold after every list, for all that was shown so far."""
        return RulesGuard(rules_of(self.limits))

    def offers(
        self, scenario: Scenario, length: int, terms: Terms, users: int
    ) -> tuple[Candidates, Tensor]:
        """The value of showing each item, -inf where it may not be; and the chances.

        users: how many there are in all, of whom these are some.

        Every class of items has its own price, so none of them may be left out; but no list needs
        more than `length` items of a class. Of many users times items, no others are kept.
        """
        kept: list[tuple[Tensor, ...]] = []
        n_items = len(self.lists.sensitive)
        many = users * n_items > VALUES_KEPT
        for rows in torch.arange(scenario.n_users).split(rows_at_once(n_items, VALUES_AT_ONCE)):
            some = self.lists.values_of_all(scenario, rows, length)
            values = some.values.masked_fill(some.items < 0, -torch.inf)
            if many:
                at = best_of_classes(values, terms)
                kept.append((values.gather(1, at), some.chances.gather(1, at), at))
            else:
                kept.append((values, some.chances))
        values, chances, *items = (torch.cat(tables) for tables in zip(*kept, strict=True))
        codes = items[0] if many else torch.arange(n_items).expand_as(values)
        return Candidates(codes, values), chances


def best_of_classes(values: Tensor, terms: Terms) -> Tensor:
    """(b, C) the items with the highest values (b, n_items), as many of a class as a list has."""
    best = []
    for members in map(torch.from_numpy, terms.items_of_class):
        most = min(terms.length, len(members))
        best.append(members[values.index_select(1, members).topk(most, dim=1).indices])
    return torch.cat(best, dim=1)


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
    """Lists with the values and chances of their items, which are among the offers."""
    values, scores = (on_lists(lists, offers.items, table) for table in (offers.values, chances))
    return Served.of(lists, values=values, scores=scores, prices=prices)
