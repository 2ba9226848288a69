"""From prices to whole lists: who of the users at the margin is shown which of two lists.

At the prices of the linear program, most users have one best list. A few are indifferent between
some; an integer program over these lists, and those that lose the least, keeps every rule.
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from fairhorizon.allocation.several.all_lists import NODES, all_lists
from fairhorizon.allocation.several.prices import PriceSearch
from fairhorizon.allocation.several.terms import Counts, Floats
from fairhorizon.allocation.sharded.priced_users import PricedUsers, Tried
from fairhorizon.metrics.shares import ROUNDING

# of users, candidates and places: up to so many, one program of all lists is fast, or can be tried
FEW_CELLS, MOST_CELLS = 600, 40_000


def whole_lists(best: PricedUsers, room: Floats, found: PriceSearch, gap: float) -> bool:
    """Settle on lists that keep the rules, within the gap of the best; whether they were found."""
    if (found.tried[-1].use <= room + ROUNDING).all():
        slack = float(found.prices @ (room - found.tried[-1].use))
        if slack <= gap:  # complementary slackness: these are best
            best.exchange(found.tried)
            return True
    cells = best.n_users * best.columns * best.terms.length
    if cells <= FEW_CELLS:
        return _among_all(best, room)
    if any(_exchanged(best, room, found.prices, more, gap) for more in _further(best, room, found)):
        return True
    return cells <= MOST_CELLS and _among_all(best, room)


def _among_all(best: PricedUsers, room: Floats) -> bool:
    at = all_lists(best.gathered(), room)
    if at is not None:
        best.settle(at)
    return at is not None


def _further(best: PricedUsers, room: Floats, found: PriceSearch) -> Iterator[list[Tried]]:
    """More and more lists: those on the way to the prices, then those around the prices."""
    lists = list(found.tried)
    yield lists
    none = np.zeros_like(found.prices)
    prices = found.prices.copy()
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        beyond = lists[-1].use > room + ROUNDING
        unit = step * max(1e-2, float(found.prices.max(initial=0.0)))
        for way in (prices + unit * beyond, np.maximum(0.0, prices - unit * beyond)):
            lists.insert(0, best.at_prices(way, none, lists))
        yield lists


def _exchanged(
    best: PricedUsers, room: Floats, prices: Floats, lists: list[Tried], gap: float
) -> bool:
    """Settle on the last of the lists, some exchanged for others such that the rules are kept."""
    left = room - lists[-1].use
    most = 200 + 60 * len(room)
    while True:
        total, some = best.alternatives(lists, prices, most)
        chosen = _choose(some.users, some.worth, some.use, left, gap)
        if chosen is not None:
            use = best.exchange(lists, some.at(chosen))
            if (use <= room + ROUNDING).all():
                return True
        if most >= total:
            return False
        most *= 4


def _choose(users: Counts, worth: Floats, use: Floats, left: Floats, gap: float) -> Counts | None:
    """Which alternatives to take, at most one a user, for the highest worth within what is left."""
    n = len(users)
    if not n:
        return np.zeros(0, np.int64) if (left >= -ROUNDING).all() else None
    _, row = np.unique(users, return_inverse=True)
    one_each = sparse.csc_array((np.ones(n), (row, np.arange(n))))
    whole = np.abs(use - use.round()).max(0) < ROUNDING  # then what is left is whole as well
    limits = np.where(whole, np.floor(left + ROUNDING), left)
    use = np.where(whole, use.round(), use)
    matter = np.maximum(use, 0.0).sum(0) > limits  # the others hold whatever is taken
    use, limits = use[:, matter], limits[matter]
    # a constant beside the objective makes the relative gap of the solver an absolute one
    total = 1 + float(np.abs(worth).sum())
    result = milp(
        np.append(-worth, -total),
        integrality=np.append(np.ones(n), 0),
        bounds=(np.append(np.zeros(n), 1), np.ones(n + 1)),
        constraints=[
            LinearConstraint(sparse.hstack([one_each, np.zeros((one_each.shape[0], 1))]), ub=1),
            LinearConstraint(sparse.csr_array(np.pad(use.T, ((0, 0), (0, 1)))), ub=limits),
        ],
        options={"mip_rel_gap": gap / total, "node_limit": NODES},
    )
    if result.x is None:
        return None
    chosen: Counts = (result.x[:-1] > 0.5).nonzero()[0]
    return chosen
