"""The prices of several limits: the multipliers of the linear program over all lists.

    minimise over prices >= 0    g(prices) = sum_u merit_u(prices) + prices . room

merit_u is the merit of user u's best list (best_lists.py), so g is convex, and never below the
value of any lists that keep the limits. Of many users, g is nearly smooth, and a quasi-Newton
method descends to its minimum in a few evaluations. Of few users, it has edges: every evaluation
gives a plane below each merit_u, and a small linear program finds the prices where the planes are
lowest, not too far from the best prices so far (the box step method, Marsten, Hogan and
Blankenship 1975).
"""

import time
from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog, minimize

from fairhorizon.allocation.best_lists import BestLists, Lists
from fairhorizon.allocation.limit_matrix import Floats

PARTS = 48  # of the users, each with planes of its own
MOST_STEPS = 120
SECONDS = 1.5  # after which a search ends with the best prices so far
MOST_DESCENTS = 60
SMALL = 1e-9  # relative

# From prices to the sum of merits and the use (m,) of the best lists.
Evaluate = Callable[[Floats], tuple[float, Floats]]


def descend(evaluate: Evaluate, room: Floats, start: Floats, unit: float) -> Floats:
    """Prices near the minimum of g, for many users: by a quasi-Newton method.

    unit: of prices, a typical value, so that the method sees numbers near 1.
    """
    best = [np.inf]
    found = [start]

    def scaled(prices: Floats) -> tuple[float, Floats]:
        merit, use = evaluate(prices * unit)
        value = merit / unit + float(prices @ room)
        if value < best[0]:
            best[0], found[0] = value, prices * unit
        return value, room - use

    minimize(
        scaled,
        start / unit,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * len(room),
        options={"maxfun": MOST_DESCENTS, "ftol": 1e-7},
    )
    return found[0]


def lowest_dual(
    best: BestLists, room: Floats, start: Floats, reach: float, tolerance: float
) -> tuple[Floats, list[Lists]]:
    """Prices at which g is within the tolerance of its minimum, for few users, and the lists that
    were best on the way, those of these prices last.

    reach: how far to go at first.
    """
    planes = _Planes(best, room)
    lists, merits = best.at_prices(start, reach)
    planes.add(lists)
    prices, bound, tried = start, float(merits.sum() + start @ room), [lists]
    started = time.monotonic()
    for _ in range(MOST_STEPS):
        if time.monotonic() - started > SECONDS:
            break
        next_prices, lowest = planes.lowest(prices, reach)
        promised = bound - lowest
        inside = np.abs(next_prices - prices).max(initial=0.0) < reach * (1 - 1e-6)
        if promised <= tolerance:
            if inside:
                break
            reach *= 4
            if promised <= SMALL * tolerance and reach > best.bonus:
                break
            continue
        lists, merits = best.at_prices(next_prices, reach)
        value = float(merits.sum() + next_prices @ room)
        planes.add(lists)
        if bound - value > 0.1 * promised:
            prices, bound = next_prices, value
            tried.append(lists)
            if not inside:
                reach *= 2
        else:
            tried.insert(-1, lists)
            if bound < value:
                reach /= 2
    return prices, tried


class _Planes:
    """Planes below the merits of each part of the users: worth - prices . use."""

    def __init__(self, best: BestLists, room: Floats) -> None:
        self.room = room
        parts = np.array_split(np.arange(best.n_users), min(PARTS, best.n_users))
        self.starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
        self.worth: list[Floats] = []  # each (parts,)
        self.use: list[Floats] = []  # each (parts, m)

    def add(self, lists: Lists) -> None:
        self.worth.append(np.add.reduceat(lists.worth, self.starts))
        self.use.append(np.add.reduceat(lists.use, self.starts, axis=0))

    def lowest(self, around: Floats, reach: float) -> tuple[Floats, float]:
        """The prices within reach where the planes are lowest, and how low that is."""
        n, m = len(self.starts), len(self.room)
        base = self.worth[0]  # of the worth, to keep the numbers of the program small
        worth = np.concatenate(self.worth) - np.tile(base, len(self.worth))
        part_of = np.tile(np.eye(n), (len(self.worth), 1))
        program = linprog(
            np.concatenate([self.room, np.ones(n)]),
            A_ub=np.hstack([-np.concatenate(self.use), -part_of]),
            b_ub=-worth,
            bounds=[
                *zip(np.maximum(0.0, around - reach), around + reach, strict=True),
                *[(None, None)] * n,
            ],
            method="highs-ds" if len(worth) < 4000 else "highs",
        )
        if program.x is None:
            return around, -np.inf
        return np.maximum(0.0, program.x[:m]), float(program.fun + base.sum())
