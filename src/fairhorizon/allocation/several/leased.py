"""Lists one after the other within what is left of prepaid budgets (service/budget).

A list is the best one at a price for each group (best_lists.py) that shows no more of a group than
its room. Prices follow the demand. A floor has no room to keep: its price alone brings it about.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.allocation.several.best_lists import NEVER, BestLists
from fairhorizon.allocation.several.one_list import best_of_each_class, one_list
from fairhorizon.allocation.several.online_prices import STEP, OnlinePrices
from fairhorizon.allocation.several.terms import Counts, Floats, GroupRule, Terms
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.shares import ROUNDING

MOST_LENGTHS = 8  # of lists, whose terms are kept


@dataclass(frozen=True, eq=False)
class LeasedList:
    """A list, and where else its places could have gone."""

    items: Counts  # codes, best first
    classes: Counts  # of each item: items of one class are in the same groups
    spares: Counts  # codes of candidates that are not in the list, best first
    spare_classes: Counts


class LeasedLists:
    """Decides lists of one source of values.

    rules: the groups and what is asked of each; a share is used by the prices alone.
    prices: (m,) initial ones, in units of the values.
    """

    def __init__(self, rules: Sequence[GroupRule], prices: Floats, *, step: float = STEP) -> None:
        self.rules, self.online = tuple(rules), OnlinePrices(prices, step)
        # counted without a share: what is used of a room is showings of the group
        self._counting = [GroupRule(one.rule.at(0.0), one.members, one.name) for one in self.rules]
        self._shares = np.array([one.rule.share for one in self.rules])
        self._sign = np.where([one.rule.is_floor for one in self.rules], -1.0, 1.0)
        self._terms: dict[int, Terms] = {}

    @property
    def prices(self) -> Floats:
        return self.online.prices

    def decide(
        self,
        values: NDArray[np.floating[Any]],
        room: Floats,
        length: int,
        codes: Counts | None = None,
    ) -> LeasedList:
        """The list of one request.

        values: (n,) of showing each item, NEVER for those that may not be shown.
        room: (m,) showings, as each rule weighs them, that may be of its group; inf: any number.
        codes: (n,) the items that values are about; None: all items, in order.
        """
        if not self.rules:
            return _best(values, length, codes)
        terms = self._terms_of(length)
        of_item = terms.of_item if codes is None else terms.of_item[codes]
        some, offers = best_of_each_class(values, of_item, terms)
        if not len(some):
            return _best(values[:0], 0, codes)
        best = BestLists(offers, terms, discount(np.arange(1, length + 1)))
        before, unit = self.prices, self.online.unit
        wanted = best.assigned(before)[0]
        self.online.follow(best, self._excess(wanted.use[0], terms))
        if not (wanted.use[0] <= room + ROUNDING).all():
            most = np.minimum(room, terms.weights.sum(1))  # no list can use more
            wanted = one_list(best, most, before, unit).lists
        made = wanted.at[0][wanted.at[0] >= 0]
        left = np.ones(len(some), dtype=np.bool_)
        left[made] = False
        (spare,) = left.nonzero()
        named = some if codes is None else codes[some]
        kinds = offers.classes[0]
        return LeasedList(named[made], kinds[made], named[spare], kinds[spare])

    def _excess(self, used: Floats, terms: Terms) -> Floats:
        """(m,) by how much a list uses more than the share of a rule; of a floor, less."""
        whole = np.maximum(terms.weights.sum(1), ROUNDING)
        excess: Floats = used / whole - self._sign * self._shares
        return excess

    def _terms_of(self, length: int) -> Terms:
        if length not in self._terms:
            if len(self._terms) >= MOST_LENGTHS:
                self._terms.clear()
            self._terms[length] = Terms.of(self._counting, length)
        return self._terms[length]


def _best(values: NDArray[np.floating[Any]], length: int, codes: Counts | None) -> LeasedList:
    """Without rules: the best by value."""
    deep = min(2 * length, len(values))
    some = np.argpartition(-values, deep - 1)[:deep] if deep else np.empty(0, dtype=np.int64)
    some = some[values[some] > NEVER]
    some = some[np.argsort(-values[some], kind="stable")]
    named = some if codes is None else codes[some]
    kinds = np.zeros(len(named), dtype=np.int64)
    return LeasedList(named[:length], kinds[:length], named[length:], kinds[length:])
