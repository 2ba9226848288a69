"""Lists of all users within one budget, where a place for the group uses it by its weight.

    maximise sum_u V_u(list)   subject to   sum_u U_u(list) <= budget

A price p on the budget parts the users (merges.py). The dual, sum_u max(V_u - p U_u) + p budget,
is convex and piecewise linear in p. Its minimum is found by intersecting the lines of two prices,
one too low and one sufficient. Users with the same list at both have it at every price in between,
so each trial has fewer users than the one before. At the critical price a few users have several
lists that are equally good; near_lists.py finds out which to show, and which users to move a little
off their best list, so that the budget is used best.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fairhorizon.allocation.merges import Counts, Merged, Merges
from fairhorizon.allocation.near_lists import settled_exactly
from fairhorizon.metrics.shares import ROUNDING

SAME = 1e-12  # relative: a gain that is rounding
HIGHER = 16.0  # times the last price, where it was not sufficient
MOST_TRIALS = 200  # of prices; some 15 are needed


def within_budget(merges: Merges, budget: float, *, exact: bool = True) -> tuple[Merged, float]:
    """The lists of the highest total value within the budget, and the price of one unit of it.

    Lists are as long as the budget allows. If all lists cannot be full, the number of showings is
    the highest possible, and the value the highest with so many. If even the lists of the least use
    exceed the budget, lists of the least use are shown.

    exact: settle the last part of the budget by a search over all lists that the price leaves in
    doubt. That is exact as long as these are not too many (near_lists.py); otherwise, and without
    `exact`, the total is below the optimum by at most what one user loses by one exchange of lists.
    """
    free = merges.best(0.0)
    if _fits(free, budget) and (free.sizes == merges.sizes).all():
        return free, 0.0
    if least_use(merges) <= budget + ROUNDING:
        return _at_critical_price(merges, budget, free, exact=exact)
    return _shortened(merges, budget, exact=exact)


def _shortened(merges: Merges, budget: float, *, exact: bool) -> tuple[Merged, float]:
    """Lists that may end early: as many showings as possible, then as much value as possible.

    A bonus on every showing, larger than all value that could be gained by one less, puts the
    showings first.
    """
    bonus = 1 + 2 * largest_value(merges) * len(merges.weights) * merges.n_users
    shorter = replace(merges, may_end=True, bonus=bonus)
    budget = max(budget, least_use(shorter))
    free = shorter.best(0.0)
    if _fits(free, budget):
        return free, 0.0
    shown, price = _at_critical_price(shorter, budget, free, exact=exact)
    if not exact:
        return shown, price
    # what is left of the budget, given the sizes of the lists
    again, _ = within_budget(replace(merges, sizes=shown.sizes), budget)
    return max(shown, again, key=merges.total), price


def least_use(merges: Merges) -> float:
    """Of the budget, by lists of any value."""
    sides = (np.where(side > -np.inf, 0.0, -np.inf) for side in (merges.group, merges.rest))
    group, rest = sides
    worthless = replace(merges, group=group, rest=rest, bonus=0.0)
    return -sum(float(block.tails(1.0).best[0].sum()) for block in worthless.blocks())


def _at_critical_price(
    merges: Merges, budget: float, over: Merged, *, exact: bool
) -> tuple[Merged, float]:
    """From lists that are over the budget at a price of 0."""
    within = _sufficient(merges, budget)
    total = float(within.use.sum())
    active, price = np.arange(merges.n_users), 0.0
    for _ in range(MOST_TRIALS):
        active = active[_differ(over.at(active), within.at(active))]
        low, high, some = over.at(active), within.at(active), merges.of(active)
        extra = float(low.use.sum() - high.use.sum())
        if extra <= 0:
            break
        price = (merges.total(low) - merges.total(high)) / extra
        trial = some.best(price)
        net, old = (merges.total(lists) - price * lists.use.sum() for lists in (trial, high))
        if net - old <= SAME * (abs(old) + price * abs(extra)):
            break
        if total + trial.use.sum() - high.use.sum() <= budget + ROUNDING:
            total += float(trial.use.sum() - high.use.sum())
            within.put(active, trial)
        else:
            over.put(active, trial)
    shown = _filled(within, over, active, budget)
    if exact:
        shown = settled_exactly(merges, shown, price, budget)
    return shown, price


def _sufficient(merges: Merges, budget: float) -> Merged:
    """Lists within the budget, at a high price."""
    price = 2 * (largest_value(merges) + merges.bonus) / float(np.ptp(merges.use))
    while not _fits(shown := merges.best(price), budget):
        price *= HIGHER
    return shown


def _filled(within: Merged, over: Merged, active: Counts, budget: float) -> Merged:
    """At the critical price: some users get the lists that use more, while the budget lasts."""
    left = budget + ROUNDING - float(within.use.sum())
    more = over.use[active] - within.use[active]
    chosen = []
    for user, use in zip(active.tolist(), more.tolist(), strict=True):
        if 0 < use <= left:
            chosen.append(user)
            left -= use
    rows = np.array(chosen, dtype=np.int64)
    within.put(rows, over.at(rows))
    return within


def _differ(one: Merged, other: Merged) -> NDArray[np.bool_]:
    return np.abs(one.use - other.use) + np.abs(one.values - other.values) > SAME


def _fits(shown: Merged, budget: float) -> bool:
    return float(shown.use.sum()) <= budget + ROUNDING


def largest_value(merges: Merges) -> float:
    """The largest absolute value at any place; 1 if all are 0."""
    return largest(merges) or 1.0


def largest(merges: Merges) -> float:
    """The same; 0 if all are 0."""
    values = np.stack([merges.group, merges.rest])
    values = values[values > -np.inf]
    return float(np.abs(values).max(initial=0.0) * merges.weights.max(initial=0.0))
