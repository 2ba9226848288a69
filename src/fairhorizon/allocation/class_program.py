"""Who gets an item of which class, such that the budgets of a step are kept at the least loss.

    maximise sum_u v[u, c_u]   subject to   sum_u a[j, c_u] <= B_j    for every constraint j

a: (m, C) costs of the classes, that is of the items that cost the same under every constraint
v: (b, C) the score of every user's best item of each class; -inf where there is none
B: (m,) budgets of this step.  The price of a constraint is its multiplier: what one unit of its
budget is worth in score, 0 where the budget does not bind.
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
SAMPLE = 256  # users who tell the prices for the rest to be judged by


def allocate(values: Floats, costs: Floats, budgets: Floats) -> tuple[Classes, Floats]:
    """(b,) the class that every user gets, and (m,) the prices of the budgets.

    values (b, C) as v above, something finite in every row; costs (m, C) of whole numbers.
    Where the budgets cannot be kept, the total excess over them is the least.
    """
    budgets = np.array([whole_showings(budget) for budget in budgets], dtype=np.float64)
    choice = values.argmax(1)  # the cheapest class comes first, so it also wins a draw
    if costs.shape[1] == 1 or (costs[:, choice].sum(1) <= budgets).all():
        return choice, np.zeros(len(budgets))
    if costs.shape == (1, 2):
        return _by_order(values, costs[0], budgets[0])
    for j in (np.ptp(costs, axis=1) == 1).nonzero()[0]:
        choice, price = _by_one_of_several(values, costs[j], budgets[j])
        if (costs[:, choice].sum(1) <= budgets).all():  # the best under one, and it keeps them all
            return choice, np.where(np.arange(len(costs)) == j, price, 0.0)
    return _by_program(values, costs, budgets)


def _by_one_of_several(values: Floats, costs: Floats, budget: float) -> tuple[Classes, Floats]:
    """As if there were one budget: of the classes that cost the same, everybody's best."""
    cheap, dear = (costs == costs.min()).nonzero()[0], (costs == costs.max()).nonzero()[0]
    sides = [classes[values[:, classes].argmax(1)] for classes in (cheap, dear)]
    options = np.stack(sides, axis=1)  # (b, 2)
    two = np.take_along_axis(values, options, axis=1)
    side, price = _by_order(two, costs[[cheap[0], dear[0]]], budget)
    return np.take_along_axis(options, side[:, None], axis=1)[:, 0], price


def _by_order(values: Floats, costs: Floats, budget: float) -> tuple[Classes, Floats]:
    """One budget, a cheap and a dear class: the dear one for those who gain the most by it.

    The price is the gain of the first who is refused. Who has nothing cheap left gains
    infinitely and so comes first; where they alone are too many, nobody else gets a dear item.
    """
    cheap, dear = costs
    lists_of_one = np.ones(len(values), dtype=np.int64)
    gains = exchange_gains(values[:, 1:], values[:, :1], lists_of_one)[:, 0]
    order = np.argsort(-gains, kind="stable")
    places = int((budget - cheap * len(gains)) // (dear - cheap))
    places = min(max(places, int((gains == np.inf).sum())), int((gains > 0).sum()))
    choice = np.zeros(len(gains), dtype=np.int64)
    choice[order[:places]] = 1
    refused = gains[order[places:]]
    price = max(0.0, float(refused[0])) if len(refused) else 0.0
    return choice, np.array([price / (dear - cheap)])


def _by_program(values: Floats, costs: Floats, budgets: Floats) -> tuple[Classes, Floats]:
    """Several budgets: a linear program over the users whose class is in doubt.

    Prices found on a sample tell who is near to a change of class. If, at the prices found on
    those in doubt, everybody else has what is best at these prices, they are the prices of the
    whole program; who has not is in doubt too.
    """
    loss = values.max(1, keepdims=True) - values
    loss[~_worth_a_thought(loss, costs)] = np.inf
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
    """What everybody would get at the prices of a sample, and who is the nearest to a change."""
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
    """The linear program: classes, where at most m users come out divided, and prices.

    A unit of excess is dearer than all that could be gained by it, so excess is least first.
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


def _worth_a_thought(loss: Floats, costs: Floats) -> NDArray[np.bool_]:
    """(b, C): there is such an item, and no class that costs no more has a better one."""
    keep = np.isfinite(loss)
    for c, d in itertools.permutations(range(loss.shape[1]), 2):
        if (costs[:, d] <= costs[:, c]).all():
            keep[:, c] &= loss[:, d] > loss[:, c]
    return keep


def _mend(choice: Classes, values: Floats, costs: Floats, budgets: Floats) -> Classes:
    """Bring down what excess is left by moving users one or two at a time, at the least loss."""
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
    """For every two classes the user who loses the least by going from one to the other.

    Users, where they go and their losses; first stands -1, nobody.
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
