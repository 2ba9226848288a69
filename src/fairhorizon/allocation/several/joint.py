"""Lists for all users at once under several limits and floors on groups that may overlap.

    maximise sum_u sum_k w_k v_u(item at place k)   subject to every rule on the showings of a group

Prices first (prices.py), at which nearly every user has one best list (best_lists.py), then whole
lists (whole_lists.py). `bound` and `value` of the answer say how far from the best they can be at
most; tests hold that against general solvers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.several.best_lists import BestLists
from fairhorizon.allocation.several.one_list import best_of_each_class, one_list
from fairhorizon.allocation.several.prices import PriceSearch, descended, search_prices
from fairhorizon.allocation.several.terms import Floats, GroupRule, Terms
from fairhorizon.allocation.several.whole_lists import whole_lists
from fairhorizon.allocation.sharded.calls import ShardsHere, UserShards
from fairhorizon.allocation.sharded.priced_users import PricedUsers
from fairhorizon.allocation.sharded.rules_shard import RulesShard
from fairhorizon.metrics.shares import ROUNDING

SAMPLES = (128, 768)  # users on whom first prices are found
EXACT = 48  # users, up to which the prices are those of the linear program
EXACTLY = 1e-7  # in the same unit as values
FIRST_REACH = 0.05  # of the search for prices, in units of a typical value in a list
CLOSE = 0.02  # of the largest value, for every rule: how near lists and prices come to the best


@dataclass(frozen=True)
class PricesOfRules:
    """The price of each rule on lists that shards have made, and how good the lists are."""

    prices: tuple[float, ...]  # of a showing that counts 1, in value; 0 where a rule does not bind
    value: float  # sum of w v
    bound: float  # no lists as long as these that keep the rules have a higher value
    kept: bool  # whether all rules are


@dataclass(frozen=True)
class ListsUnderRules:
    """What each user is shown, and the rest as of `PricesOfRules`."""

    lists: Tensor  # (b, length) int64, -1 at the end where nothing may be shown
    prices: tuple[float, ...]
    value: float
    bound: float
    kept: bool


def lists_under_rules(
    candidates: Candidates, rules: Sequence[GroupRule], *, length: int
) -> ListsUnderRules:
    """The lists of the highest total value that keep all rules."""
    return lists_under(candidates, Terms.of(rules, length))


def lists_under(candidates: Candidates, terms: Terms) -> ListsUnderRules:
    """The same under terms that were worked out before.

    candidates: as for `joint_lists`, or with a value of -inf for what may not be shown; the best
    `length` of every class have to be among them.
    """
    shard = RulesShard(candidates, terms)
    made = rules_over(ShardsHere([shard]), terms)
    return ListsUnderRules(shard.lists, made.prices, made.value, made.bound, made.kept)


def rules_over(shards: UserShards, terms: Terms) -> PricesOfRules:
    """The shards (`RulesShard`) make the lists of the highest total value that keep all rules."""
    best, room = PricedUsers(shards, terms), np.zeros(len(terms.rules))
    if 0 in (best.n_users, best.columns):
        return PricesOfRules((0.0,) * len(room), 0.0, 0.0, kept=True)
    if best.n_users == 1:
        return _of_one(best, room)
    found = _solved(best, room)
    worth, use, shown = best.measured()
    filled = best.bonus * float(shown)
    return PricesOfRules(
        prices=tuple((best.unit * found.prices).tolist()),
        value=best.unit * (worth - filled),
        bound=best.unit * (found.bound - filled),
        kept=bool((use <= room + ROUNDING).all()),
    )


def _of_one(priced: PricedUsers, room: Floats) -> PricesOfRules:
    """The same for one user."""
    terms, offers = priced.terms, priced.gathered().offers
    some, few = best_of_each_class(offers.values[0], offers.classes[0], terms)
    best = BestLists(few, terms, priced.weights)
    alone = one_list(best, room, room, FIRST_REACH / 2)
    made = alone.lists
    priced.settle(np.where(made.at < 0, -1, np.append(some, -1)[made.at]))
    filled = best.bonus * float((made.at >= 0).sum())
    return PricesOfRules(
        prices=tuple((priced.unit * alone.prices).tolist()),
        value=priced.unit * (float(made.worth.sum()) - filled),
        bound=priced.unit * (alone.bound - filled),
        kept=bool((made.use.sum(0) <= room + ROUNDING).all()),
    )


def _solved(best: PricedUsers, room: Floats) -> PriceSearch:
    """Prices and lists; where no lists are found that keep the rules, the best at the prices."""
    prices, reach, close = np.zeros(len(room)), FIRST_REACH, CLOSE * best.largest * len(room)
    if best.n_users > EXACT:
        for sample in SAMPLES:
            if best.n_users > 3 * sample:
                step = best.n_users // sample
                prices = descended(best, room / step, prices, reach, step=step).prices
                reach = FIRST_REACH / 50
        found = descended(best, room, prices, reach)
        if whole_lists(best, room, found, close):
            return found
        prices = found.prices
    found = search_prices(best, room, prices, reach, min(close, EXACTLY))
    if not whole_lists(best, room, found, close):
        best.exchange(found.tried)
    return found
