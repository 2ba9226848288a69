"""Which class of items each user is shown, so that a step keeps its budgets at the least loss.

    maximise sum_u v[u, c_u]   subject to   sum_u a[j, c_u] <= B_j    for every limit j

a: (m, C) costs of the classes; a class is all items with the same cost under every limit
v: (b, C) the score of each user's best item of each class; -inf where there is none
B: (m,) budgets of this step.  The price of a limit is its multiplier: how much the total score
rises for one more unit of its budget, 0 where the budget does not bind.
"""

import itertools

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from fairhorizon.allocation.exchange import exchange_gains
from fairhorizon.metrics.shares import whole_showings

Floats = NDArray[np.float64]
Classes = NDArray[np.int64]

NEARLY = 1e-9  # of the largest loss: a class that costs a user this much more is as good
SAMPLE = 256  # users on whom first prices are found


def assign_classes(values: Floats, costs: Floats, budgets: Floats) -> tuple[Classes, Floats]:
    """(b,) the class that each user is shown, and (m,) the prices of the budgets.

    values (b, C) as v above, with a finite number in every row; costs (m, C) are whole numbers.
    Where the budgets cannot be kept, the total excess over them is minimal.
    """
    budgets = np.array([whole_showings(budget) for budget in budgets], dtype=np.float64)
    choice = values.argmax(1)  # the cheapest class comes first, so it also wins a tie
    if costs.shape[1] == 1 or (costs[:, choice].sum(1) <= budgets).all():
        return choice, np.zeros(len(budgets))
    if costs.shape == (1, 2):
        return _by_order(values, costs[0], budgets[0])
    for j in (np.ptp(costs, axis=1) == 1).nonzero()[0]:
        choice, price = _by_one_of_several(values, costs[j], budgets[j])
        if (costs[:, choice].sum(1) <= budgets).all():  # optimal under one, keeps all
            return choice, np.where(np.arange(len(costs)) == j, price, 0.0)
    return _by_program(values, costs, budgets)


def _by_one_of_several(values: Floats, costs: Floats, budget: float) -> tuple[Classes, Floats]:
    """Under one budget alone: of the classes that cost the same, each user's best."""
    cheap = (costs == costs.min()).nonzero()[0]
    expensive = (costs == costs.max()).nonzero()[0]
    sides = [classes[values[:, classes].argmax(1)] for classes in (cheap, expensive)]
    options = np.stack(sides, axis=1)  # (b, 2)
    two = np.take_along_axis(values, options, axis=1)
    side, price = _by_order(two, costs[[cheap[0], expensive[0]]], budget)
    return np.take_along_axis(options, side[:, None], axis=1)[:, 0], price


def _by_order(values: Floats, costs: Floats, budget: float) -> tuple[Classes, Floats]:
    """One budget, a cheap and an expensive class: the latter for the users who gain the most by it.

    The price is the gain of the first user who is refused. Users with nothing cheap left gain
    infinitely and come first; where they alone are too many, nobody else is shown the other class.
    """
    cheap, expensive = costs
    lists_of_one = np.ones(len(values), dtype=np.int64)
    gains = exchange_gains(values[:, 1:], values[:, :1], lists_of_one)[:, 0]
    order = np.argsort(-gains, kind="stable")
    places = int((budget - cheap * len(gains)) // (expensive - cheap))
    places = min(max(places, int((gains == np.inf).sum())), int((gains > 0).sum()))
    choice = np.zeros(len(gains), dtype=np.int64)
    choice[order[:places]] = 1
    refused = gains[order[places:]]
    price = max(0.0, float(refused[0])) if len(refused) else 0.0
    return choice, np.array([price / (expensive - cheap)])


def _by_program(values: Floats, costs: Floats, budgets: Floats) -> tuple[Classes, Floats]:
    """Several budgets: a linear program over the users whose class is in doubt.

    Prices found on a sample show which users are close to a change of class. If everybody else
    already has the best class at the prices found on those in doubt, these are the prices of the
    whole program; whoever has not is added to those in doubt.
    """
    loss = values.max(1, keepdims=True) - values
    loss[~_undominated(loss, costs)] = np.inf
    unit = loss[loss < np.inf].max() or 1.0
    loss /= unit
    choice, doubtful = _first_guess(loss, costs, budgets)
    while True:
        rest = budgets - costs[:, choice[~doubtful]].sum(1)
        choice[doubtful], prices = _solve(loss[doubtful], costs, rest)
        net = loss + prices @ costs
        wrong = ~doubtful & (net[np.arange(len(net)), choice] > net.min(1) + NEARLY)
        if not wrong.any():
            return _mend(choice, values, costs, budgets), prices * unit
        doubtful |= wrong


def _first_guess(loss: Floats, costs: Floats, budgets: Floats) -> tuple[Classes, NDArray[np.bool_]]:
    """Each user's class at the prices of a sample, and the users closest to a change of class."""
    b = len(loss)
    if b <= 4 * SAMPLE:  # one program of all is as fast as two small ones
        return np.zeros(b, dtype=np.int64), np.ones(b, dtype=np.bool_)
    sample = loss[:: b // SAMPLE]
    net = loss + _solve(sample, costs, budgets * len(sample) / b)[1] @ costs
    best, second = np.partition(net, 1, axis=1)[:, :2].T
    doubtful = np.zeros(b, dtype=np.bool_)
    doubtful[np.argsort(second - best)[: max(SAMPLE, b // 10)]] = True
    return net.argmin(1), doubtful


def _solve(loss: Floats, costs: Floats, budgets: Floats) -> tuple[Classes, Floats]:
    """Classes and prices by the linear program; at most m users come out fractional.

    A unit of excess costs more than could be gained by it, so excess is minimised first.
    """
    b, m = len(loss), len(costs)
    users, options = (loss < np.inf).nonzero()
    k = len(users)
    program = {
        # a price solves m equations with coefficients from -2 to 2 and losses up to 1
        "c": np.append(loss[users, options], np.full(m, float(2 * m) ** m)),
        "A_ub": sparse.hstack([sparse.csc_array(costs[:, options]), -sparse.eye_array(m)]),
        "b_ub": budgets,
        "A_eq": sparse.csc_array((np.ones(k), (users, np.arange(k))), shape=(b, k + m)),
        "b_eq": np.ones(b),
    }
    # the interior point, then a vertex: for these it is several times faster than the simplex
    solution = linprog(**program, method="highs-ipm", options={"presolve": False})
    if solution.x is None:
        solution = linprog(**program, method="highs-ds")
    portions = np.zeros_like(loss)
    portions[users, options] = solution.x[:k]
    return portions.argmax(1), np.maximum(0, -solution.ineqlin.marginals)


def _undominated(loss: Floats, costs: Floats) -> NDArray[np.bool_]:
    """(b, C): the class has an item, and no class that costs no more has a better one."""
    keep = np.isfinite(loss)
    for c, d in itertools.permutations(range(loss.shape[1]), 2):
        if (costs[:, d] <= costs[:, c]).all():
            keep[:, c] &= loss[:, d] > loss[:, c]
    return keep


def _mend(choice: Classes, values: Floats, costs: Floats, budgets: Floats) -> Classes:
    """Reduce the remaining excess by moving one or two users at a time, at the least loss."""
    choice = choice.copy()
    while True:
        over = costs[:, choice].sum(1) - budgets
        total = over.clip(0).sum()
        if total == 0:
            return choice
        movers, targets, losses = _moves(choice, values)
        change = np.zeros((len(movers), len(budgets)))
        real = movers >= 0
        change[real] = (costs[:, targets[real]] - costs[:, choice[movers[real]]]).T
        after = (over + change[:, None] + change[None, :]).clip(0).sum(2)
        after[(movers[:, None] == movers[None, :]) & real] = np.inf  # a user moves once
        if after.min() >= total:
            return choice
        pairs = losses[:, None] + losses[None, :]
        pair = np.where(after == after.min(), pairs, np.inf).argmin()
        for move in np.unravel_index(pair, after.shape):
            if real[move]:
                choice[movers[move]] = targets[move]


def _moves(choice: Classes, values: Floats) -> tuple[Classes, Classes, Floats]:
    """For every pair of classes, the user who loses the least by moving from one to the other.

    Users, the classes they move to, and their losses; the first entry, -1, moves nobody.
    """
    moves = [(-1, -1, 0.0)]
    for here in np.unique(choice):
        users = (choice == here).nonzero()[0]
        losses = values[users, here, None] - values[users]
        for there in range(values.shape[1]):
            least = losses[:, there].argmin()
            if there != here and losses[least, there] < np.inf:
                moves.append((users[least], there, losses[least, there]))
    movers, targets, least_losses = zip(*moves, strict=True)
    return np.array(movers), np.array(targets), np.array(least_losses)
