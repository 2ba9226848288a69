"""The prices of several rules: the multipliers of the linear program over all lists.

    minimise over prices >= 0    g(prices) = sum_u merit_u(prices) + prices . room

merit_u is the merit of user u's best list (best_lists.py), so g is convex, and never below the
value of any lists that keep the rules. Of many users, g is nearly smooth, and a quasi-Newton method
descends to its minimum in a few evaluations. Of few users, it has edges: every evaluation gives a
plane below each merit_u, and a small linear program finds the prices where the planes are lowest,
not too far from the best prices so far (the box step method, Marsten, Hogan and Blankenship 1975).
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog, minimize

from fairhorizon.allocation.several.terms import Floats
from fairhorizon.allocation.sharded.priced_users import PricedUsers, Tried

PARTS = 48  # of the users, each with planes of its own
MOST_STEPS = 300
MOST_DESCENTS = 60
KEPT = 12  # of the lists that were tried on the way
SMALL = 1e-9  # relative


@dataclass
class PriceSearch:
    """Prices found, and the lists that were best on the way to them."""

    prices: Floats  # (m,)
    bound: float  # g at the prices: no lists that keep the rules are worth more
    tried: list[Tried] = field(default_factory=list)  # those of the best prices are the last
    reach: float = 0.0  # how far the last steps went


def search_prices(
    best: PricedUsers, room: Floats, start: Floats, reach: float, tolerance: float
) -> PriceSearch:
    """Prices of the rules at which g is within the tolerance of its minimum.

    room: (m,) what lists may use of each rule.  start, reach: first prices, and how far to go.
    """
    planes = _Planes(best, room)
    lists = best.at_prices(start, np.full(len(room), reach), ())
    found = PriceSearch(start, float(lists.merit + start @ room), [lists], reach)
    planes.add(lists)
    for _ in range(MOST_STEPS):
        prices, lowest = planes.lowest(found.prices, found.reach)
        promised = found.bound - lowest
        inside = np.abs(prices - found.prices).max(initial=0.0) < found.reach * (1 - 1e-6)
        if promised <= tolerance:
            if inside:
                break
            found.reach *= 4
            if promised <= SMALL * tolerance and found.reach > best.bonus:
                break
            continue
        lists = best.at_prices(prices, np.full(len(room), found.reach), found.tried)
        value = float(lists.merit + prices @ room)
        planes.add(lists)
        if found.bound - value > 0.1 * promised:
            found.prices, found.bound = prices, value
            found.tried.append(lists)
            if not inside:
                found.reach *= 2
        else:
            found.tried.insert(-1, lists)
            if found.bound - value < 0:
                found.reach /= 2
    return found


def descended(
    best: PricedUsers, room: Floats, start: Floats, reach: float, *, step: int = 1
) -> PriceSearch:
    """Prices near the minimum of g, for many users: by a quasi-Newton method.

    step: of every such user only, to begin with.
    """
    found = PriceSearch(start, np.inf, [], reach)

    def evaluated(prices: Floats) -> tuple[float, Floats]:
        lists = best.at_prices(prices, np.where(prices > 0, reach, 0.0), found.tried, step=step)
        value = float(lists.merit + prices @ room)
        found.tried.append(lists)
        if value < found.bound:
            found.prices, found.bound = prices.copy(), value
        elif len(found.tried) > 1:  # those of the best prices stay the last
            found.tried[-2:] = found.tried[:-3:-1]
        del found.tried[:-KEPT]
        return value - filled, room - lists.use

    filled = best.bonus * best.filled / step  # of no interest
    bounds = [(0.0, None)] * len(room)
    options = {"maxfun": MOST_DESCENTS, "ftol": 1e-7}
    minimize(evaluated, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found


class _Planes:
    """Planes below the merits of each part of the users: worth - prices . use."""

    def __init__(self, best: PricedUsers, room: Floats) -> None:
        self.best, self.room = best, room
        parts = np.array_split(np.arange(best.n_users), min(PARTS, best.n_users))
        self.ends = np.cumsum([len(part) for part in parts]).tolist()
        self.worth: list[Floats] = []  # each (parts,)
        self.use: list[Floats] = []  # each (parts, m)

    def add(self, lists: Tried) -> None:
        worth, use = self.best.planes(lists, self.ends)
        self.worth.append(worth)
        self.use.append(use)

    def lowest(self, around: Floats, reach: float) -> tuple[Floats, float]:
        """The prices within reach where the planes are lowest, and how low that is."""
        n, m = len(self.ends), len(self.room)
        worth = np.concatenate(self.worth)
        base = self.worth[0]  # of the worth, to keep the numbers of the program small
        rows = len(worth)
        part_of = np.tile(np.eye(n), (len(self.worth), 1))
        program = linprog(
            np.concatenate([self.room, np.ones(n)]),
            A_ub=np.hstack([-np.concatenate(self.use), -part_of]),
            b_ub=-(worth - np.tile(base, len(self.worth))),
            bounds=[
                *zip(np.maximum(0.0, around - reach), around + reach, strict=True),
                *[(None, None)] * n,
            ],
            method="highs-ds" if rows < 4000 else "highs",
        )
        if program.x is None:
            return around, -np.inf
        return np.maximum(0.0, program.x[:m]), float(program.fun + base.sum())
