"""The list of one user under several rules, in a fraction of the time that prices for many take."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.allocation.several.all_lists import all_lists
from fairhorizon.allocation.several.best_lists import NEVER, BestLists, Lists, Offers
from fairhorizon.allocation.several.terms import Counts, Floats, Terms
from fairhorizon.metrics.shares import ROUNDING

RAISES = 10  # of the prices, before an integer program looks for a list
HALVINGS = 6  # of the way back from prices that suffice
EXCHANGES = 30  # of single items, at most
FEW_CLASSES = 32  # of which the best are found one class at a time


@dataclass(frozen=True)
class OneList:
    """A list that keeps the rules, the prices at which it is best, and a bound on any other."""

    lists: Lists
    prices: Floats
    bound: float


def one_list(best: BestLists, room: Floats, start: Floats, unit: float) -> OneList:
    """The best list of one user that is found within the room (m,) of the rules.

    start: prices to begin with; those of broken rules are raised by units until they hold, then
    lowered as far as they still do, and single items exchanged for better ones. If raising does not
    help, an integer program finds the longest list that keeps the rules, and of these the best.
    """
    found = _Found(best, room)
    low = high = start
    lists = found.look(start)
    for number in range(RAISES):
        if found.keeps(lists):
            break
        low, high = high, high + unit * 2.0**number * (lists.use[0] > room + ROUNDING)
        lists = found.look(high)
    if found.best is None:
        at = all_lists(best, room)
        nothing = np.full((1, best.terms.length), -1, dtype=np.int64)
        made = best.lists(nothing if at is None else at)
        made = made if found.keeps(made) else best.lists(nothing)
        return OneList(made, start, found.bound)
    for _ in range(HALVINGS if low is not high else 0):
        middle = (low + high) / 2
        if found.keeps(found.look(middle)):
            high = middle
        else:
            low = middle
    return OneList(_improved(best, found.best, room, start), high, found.bound)


def _improved(best: BestLists, lists: Lists, room: Floats, prices: Floats) -> Lists:
    """Exchanges of one item for another, as long as one is better at these prices.

    Prices that make a list keep the rules can take more items of a group than needed, where the
    next ones are worth as much as the first.
    """
    terms, (at,) = best.terms, lists.at.copy()
    size = int((at >= 0).sum())
    values, classes = best.offers.values[0], best.offers.classes[0]
    weights, charges = best.weights[:size, None], terms.charges(prices)[:, :size]
    for _ in range(EXCHANGES):
        shown = at[:size]
        gain = weights * (values - values[shown, None])
        gain -= charges[classes].T - charges[classes[shown], np.arange(size)][:, None]
        changed = terms.excess[:, None, classes] - terms.excess[:, classes[shown], None]
        use = best.lists(at[None]).use[0][:, None, None] + terms.weights[:, :size, None] * changed
        possible = (use <= (room + ROUNDING)[:, None, None]).all(0) & (gain > ROUNDING)
        possible[:, shown] = False
        if not possible.any():
            break
        place, new = np.unravel_index(np.where(possible, gain, -np.inf).argmax(), gain.shape)
        at[place] = new
        if terms.alike:
            at[:size] = at[:size][np.argsort(-values[at[:size]], kind="stable")]
    return best.lists(at[None])


class _Found:
    """The best list so far that keeps the rules."""

    def __init__(self, every: BestLists, room: Floats) -> None:
        self.every, self.room = every, room
        self.best: Lists | None = None
        self.bound = np.inf

    def keeps(self, lists: Lists) -> bool:
        return bool((lists.use[0] <= self.room + ROUNDING).all())

    def look(self, prices: Floats) -> Lists:
        lists, merit = self.every.assigned(prices)
        self.bound = min(self.bound, float(merit.sum() + prices @ self.room))
        better = self.best is None or lists.worth[0] > self.best.worth[0]
        if better and self.keeps(lists):
            self.best = lists
        return lists


def best_of_each_class(
    values: NDArray[np.floating[Any]], of_item: Counts, terms: Terms
) -> tuple[Counts, Offers]:
    """The columns of the best `length` candidates of every class, best first, of one user.

    values: (n,), NEVER for what may not be shown.  of_item: (n,) the class of each.
    """
    if of_item is terms.of_item and terms.n_classes <= FEW_CLASSES:
        best = [_first(values, items, terms.length) for items in terms.items_of_class]
        some = np.concatenate(best)
    else:
        (there,) = (values > NEVER).nonzero()
        order = there[np.lexsort((-values[there], of_item[there]))]
        kinds = of_item[order]
        begin = np.searchsorted(kinds, np.arange(terms.n_classes))
        rank = np.arange(len(order)) - begin[kinds]
        some = order[rank < terms.length]
    some = some[np.argsort(-values[some], kind="stable")]
    return some, Offers(values[some][None].astype(np.float64), of_item[some][None])


def _first(values: NDArray[np.floating[Any]], items: Counts, length: int) -> Counts:
    """The best so many of some items, best first; of equal ones the first. No sort of them all."""
    own = values[items]
    if len(items) > length:
        bar = np.partition(own, len(own) - length)[len(own) - length]
        above = np.flatnonzero(own > bar)
        at = np.append(above, np.flatnonzero(own == bar)[: length - len(above)])
        items, own = items[at], own[at]
    there = own > NEVER
    found: Counts = items[there][np.lexsort((items[there], -own[there]))]
    return found
