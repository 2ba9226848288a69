"""Lists under several rules by one integer program over all of them: for small problems."""

import numpy as np
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from fairhorizon.allocation.several.best_lists import NEVER, BestLists
from fairhorizon.allocation.several.terms import Counts, Floats
from fairhorizon.metrics.shares import ROUNDING

NODES = 200  # of a search for whole numbers


def all_lists(best: BestLists, room: Floats) -> Counts | None:
    """By one integer program over every candidate at every place: for small problems."""
    terms, offers, length = best.terms, best.offers, best.terms.length
    users, items = (offers.values > NEVER).nonzero()
    n = len(users)
    cells = [(u, i, k) for k in range(length) for u, i in zip(users, items, strict=True)]
    of_user, item, place = np.array(cells, dtype=np.int64).reshape(-1, 3).T
    worth = best.weights[place] * offers.values[of_user, item] + best.bonus
    kind = np.broadcast_to(offers.classes, offers.values.shape)[of_user, item]
    use = terms.excess[:, kind] * terms.weights[:, place]
    columns = np.arange(len(cells))
    b = best.n_users
    at_place = sparse.csc_array((np.ones(len(cells)), (of_user * length + place, columns)))
    once = sparse.csc_array((np.ones(len(cells)), (np.tile(np.arange(n), length), columns)))
    filled = sparse.csc_array(
        (np.ones(len(cells)), (of_user * length + place, columns)), shape=(b * length, len(cells))
    ).tocsr()
    later = np.array([u * length + k for u in range(b) for k in range(1, length)], dtype=np.int64)
    constraints = [
        LinearConstraint(at_place, ub=1),
        LinearConstraint(once, ub=1),
        LinearConstraint(use, ub=room + ROUNDING),
    ]
    if len(later):
        constraints.append(LinearConstraint(filled[later] - filled[later - 1], ub=0))
    result = milp(
        -worth,
        integrality=np.ones(len(cells)),
        bounds=(0, 1),
        constraints=constraints,
        options={"mip_rel_gap": 1e-6, "node_limit": 10 * NODES},
    )
    if result.x is None:
        return None
    at = np.full((b, length), -1, dtype=np.int64)
    taken = result.x > 0.5
    at[of_user[taken], place[taken]] = item[taken]
    return at
