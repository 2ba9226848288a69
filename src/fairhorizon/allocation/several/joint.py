"""Lists for all users at once under several limits and floors on groups that may overlap.

    maximise sum_u sum_k w_k v_u(item at place k)   subject to every rule on the showings of a group

Prices first (prices.py), at which nearly every user has one best list (best_lists.py), then whole
lists (whole_lists.py). `bound` and `value` of the answer say how far from the best they can be at
most; tests hold that against general solvers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.several.best_lists import NEVER, BestLists, Offers
from fairhorizon.allocation.several.one_list import best_of_each_class, one_list
from fairhorizon.allocation.several.prices import PriceSearch, descended, search_prices
from fairhorizon.allocation.several.terms import Counts, Floats, GroupRule, Terms
from fairhorizon.allocation.several.whole_lists import whole_lists
from fairhorizon.errors import ModelError
from fairhorizon.metrics.shares import ROUNDING
from fairhorizon.ranking import discount

SAMPLES = (128, 768)  # users on whom first prices are found
EXACT = 48  # users, up to which the prices are those of the linear program
EXACTLY = 1e-7  # in the same unit as values
FIRST_REACH = 0.05  # of the search for prices, in units of a typical value in a list
CLOSE = 0.02  # of the largest value, for every rule: how near lists and prices come to the best


@dataclass(frozen=True)
class ListsUnderRules:
    """What each user is shown, and the price of each rule."""

    lists: Tensor  # (b, length) int64, -1 at the end where nothing may be shown
    prices: tuple[float, ...]  # of a showing that counts 1, in value; 0 where a rule does not bind
    value: float  # sum of w v
    bound: float  # no lists as long as these that keep the rules have a higher value
    kept: bool  # whether all rules are


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
    if 0 in candidates.items.shape:
        nothing = candidates.items.new_full((len(candidates.items), terms.length), -1)
        return ListsUnderRules(nothing, (0.0,) * len(terms.rules), 0.0, 0.0, kept=True)
    weights = discount(torch.arange(1, terms.length + 1, dtype=torch.float64)).numpy()
    offers, unit = _offers(candidates, terms)
    room = np.zeros(len(terms.rules))
    if len(offers.values) == 1:
        some, few = best_of_each_class(offers.values[0], offers.classes[0], terms)
        best = BestLists(few, terms, weights)
        alone = one_list(best, room, room, FIRST_REACH / 2)
        made, prices, bound = alone.lists, alone.prices, alone.bound
        columns = np.where(made.at < 0, -1, np.append(some, -1)[made.at])
    else:
        best = BestLists(offers, terms, weights)
        found, columns = _solved(best, room)
        made, prices, bound = best.lists(columns), found.prices, found.bound
    filled = best.bonus * float((columns >= 0).sum())
    at = torch.from_numpy(columns)
    return ListsUnderRules(
        lists=candidates.items.cpu().gather(1, at.clamp(min=0)).masked_fill(at < 0, -1),
        prices=tuple((unit * prices).tolist()),
        value=unit * (float(made.worth.sum()) - filled),
        bound=unit * (bound - filled),
        kept=bool((made.use.sum(0) <= room + ROUNDING).all()),
    )


def _offers(candidates: Candidates, terms: Terms) -> tuple[Offers, float]:
    """The candidates with values in units of a typical one in a list."""
    items, values = candidates.items.cpu(), candidates.values.detach().float().cpu()
    if not (values.isfinite() | values.isneginf() | (items < 0)).all():
        raise ModelError(
            "the value of a candidate is not a number: the model that scores has diverged (train it"
            " anew)"
        )
    there = (items >= 0) & (values > -torch.inf)
    best = values.where(there, 0.0).topk(min(terms.length, values.shape[1])).values
    unit = float(best.double().mean()) or 1.0
    table = (values / unit).where(there, NEVER).numpy()
    same = bool((items == items[:1]).all())
    return Offers(table, terms.of_item[(items[:1] if same else items).clamp(min=0).numpy()]), unit


def _solved(best: BestLists, room: Floats) -> tuple[PriceSearch, Counts]:
    """Prices and lists; where no lists are found that keep the rules, the best at the prices."""
    prices, reach, close = np.zeros(len(room)), FIRST_REACH, CLOSE * best.largest * len(room)
    if best.n_users > EXACT:
        for sample in SAMPLES:
            if best.n_users > 3 * sample:
                rows = np.arange(0, best.n_users, best.n_users // sample)
                part = room * len(rows) / best.n_users
                prices = descended(best.of(rows), part, prices, reach).prices
                reach = FIRST_REACH / 50
        found = descended(best, room, prices, reach)
        if (at := whole_lists(best, room, found, close)) is not None:
            return found, at
        prices = found.prices
    found = search_prices(best, room, prices, reach, min(close, EXACTLY))
    at = whole_lists(best, room, found, close)
    return found, found.tried[-1].at if at is None else at
