"""Whole lists at the margin: integer programs that settle what prices leave open.

At the right prices, nearly every user has one best list. A few are indifferent between some; which
of these each of them is shown decides whether every limit is kept, and how much of its room is
used. Every program has a bound on its time: the answer is then the best lists found so far.
"""

import numpy as np
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from fairhorizon.allocation.best_lists import BestLists
from fairhorizon.allocation.candidates import NEVER
from fairhorizon.allocation.limit_matrix import Counts, Floats
from fairhorizon.metrics.shares import ROUNDING

NODES = 200  # of a search for whole numbers, if it has found any lists
SECONDS = 5.0  # that a program may take


def choose_alternatives(
    users: Counts,
    worth: Floats,
    use: Floats,
    left: Floats,
    gap: float,
    *,
    seconds: float = SECONDS,
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
        options={"mip_rel_gap": 1e-6, "node_limit": 10 * NODES, "time_limit": SECONDS},
    )
    if result.x is None:
        return None
    at = np.full((b, length), -1, dtype=np.int64)
    taken = result.x > 0.5
    at[of_user[taken], place[taken]] = item[taken]
    return at
