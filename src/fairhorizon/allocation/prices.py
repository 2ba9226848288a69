"""The prices of several limits, and whole lists at the margin.

Prices are the multipliers of the linear program over all lists:

    minimise over prices >= 0    g(prices) = sum_u merit_u(prices) + prices . room

merit_u is the merit of user u's best list (best_lists.py), so g is convex, and never below the
value of any lists that keep the limits. Of many users, g is nearly smooth, and a quasi-Newton
method descends to its minimum in a few evaluations. Of few users, it has edges: every evaluation
gives a plane below each merit_u, and a small linear program finds the prices where the planes are
lowest, not too far from the best prices so far (the box step method, Marsten, Hogan and
Blankenship 1975).

At the right prices, nearly every user has one best list. A few are indifferent between some; which
of these each of them is shown decides whether every limit is kept, and how much of its room is
used. Integer programs settle that. Each has a bound on its time: the answer is then the best lists
found so far.
"""

from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.optimize import LinearConstraint, linprog, milp, minimize

from fairhorizon.allocation.best_lists import BestLists, Lists
from fairhorizon.allocation.candidates import NEVER
from fairhorizon.allocation.limit_matrix import Counts, Floats
from fairhorizon.metrics.shares import ROUNDING

PARTS = 48  # of the users, each with planes of its own
MOST_STEPS = 120
# Of all small linear programs of one search (1 to 2 s): after so many, the best prices so far
# have to do. Counted and not timed, so that prices are the same on every machine.
MOST_CELLS = 2_500_000
NODES = 200  # of a search for whole numbers, if it has found any lists
PROGRAM_SECONDS = 5.0  # that an integer program may take
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
    cells = 0
    for _ in range(MOST_STEPS):
        cells += planes.cells
        if cells > MOST_CELLS:
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

    @property
    def cells(self) -> int:
        """Of the matrix of the linear program."""
        return len(self.worth) * len(self.starts) * (len(self.room) + len(self.starts))

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


def choose_alternatives(
    users: Counts,
    worth: Floats,
    use: Floats,
    left: Floats,
    gap: float,
    *,
    seconds: float = PROGRAM_SECONDS,
) -> Counts | None:
    """Which alternatives to take, at most one a user, for the highest worth within what is left.

    users: (n,) whose list each would replace.  worth: (n,), use: (n, m) more than that list.
    left: (m,) of the room; below 0 where it is exceeded.  gap: of worth, that may be given away.
    None: no choice keeps all limits.
    """
    n = len(users)
    if not n:
        return np.zeros(0, np.int64) if (left >= -ROUNDING).all() else None
    _, row = np.unique(users, return_inverse=True)
    one_each = sparse.csc_array((np.ones(n), (row, np.arange(n))))
    whole = np.abs(use - use.round()).max(0) < ROUNDING  # then what is left is whole as well
    bounds = np.where(whole, np.floor(left + ROUNDING), left)
    use = np.where(whole, use.round(), use)
    binding = np.maximum(use, 0.0).sum(0) > bounds  # the others hold whatever is taken
    # A constant beside the objective makes the relative gap of the solver an absolute one.
    total = 1 + float(np.abs(worth).sum())
    result = milp(
        np.append(-worth, -total),
        integrality=np.append(np.ones(n), 0),
        bounds=(np.append(np.zeros(n), 1), np.ones(n + 1)),
        constraints=[
            LinearConstraint(sparse.hstack([one_each, np.zeros((one_each.shape[0], 1))]), ub=1),
            LinearConstraint(
                sparse.csr_array(np.pad(use[:, binding].T, ((0, 0), (0, 1)))), ub=bounds[binding]
            ),
        ],
        options={"mip_rel_gap": gap / total, "node_limit": NODES, "time_limit": seconds},
    )
    return None if result.x is None else (result.x[:-1] > 0.5).nonzero()[0]


def all_lists(best: BestLists, room: Floats) -> Counts | None:
    """(b, L) columns of the best lists within the room, by one program over every candidate at
    every place: for small problems. None: none were found."""
    limits, length = best.limits, best.limits.length
    values = best.candidates.values
    users, items = (values > NEVER).nonzero()
    n, b = len(users), best.n_users
    if not n:
        return np.full((b, length), -1, dtype=np.int64)
    of_user, item = np.tile(users, length), np.tile(items, length)
    place = np.repeat(np.arange(length), n)
    worth = best.weights[place] * values[of_user, item] + best.bonus
    kind = np.broadcast_to(best.kinds, values.shape)[of_user, item]
    use = limits.excess[:, kind] * limits.weights[:, place]
    columns, ones = np.arange(len(worth)), np.ones(len(worth))
    filled = sparse.csr_array(
        (ones, (of_user * length + place, columns)), shape=(b * length, len(worth))
    )
    once = sparse.csr_array((ones, (np.tile(np.arange(n), length), columns)))
    later = np.arange(b * length).reshape(b, length)[:, 1:].ravel()
    constraints = [
        LinearConstraint(filled, ub=1),
        LinearConstraint(once, ub=1),
        LinearConstraint(sparse.csr_array(use), ub=room + ROUNDING),
    ]
    if len(later):  # no empty place before a filled one
        constraints.append(LinearConstraint(filled[later] - filled[later - 1], ub=0))
    result = milp(
        -worth,
        integrality=ones,
        bounds=(0, 1),
        constraints=constraints,
        options={"mip_rel_gap": 1e-6, "node_limit": 10 * NODES, "time_limit": PROGRAM_SECONDS},
    )
    if result.x is None:
        return None
    at = np.full((b, length), -1, dtype=np.int64)
    taken = result.x > 0.5
    at[of_user[taken], place[taken]] = item[taken]
    return at
