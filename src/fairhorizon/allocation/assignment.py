"""Who is shown what at one slot of a step, so that its budgets are kept at the least loss.

Each user is offered the best item of every class of items (`SlotOffers`), and is shown one of them:

    maximise sum_u v[u, c_u]   subject to   sum_u a[j, c_u] <= B_j    for every limit j

a: (m, C) costs of the classes; a class is all items with the same cost under every limit
v: (b, C) the score of each user's best item of each class; -inf where there is none
B: (m,) budgets of the slot.  The price of a limit is its multiplier: how much the total score
rises for one more unit of its budget, 0 where the budget does not bind.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from torch import Tensor

from fairhorizon.errors import ModelError
from fairhorizon.limits.counts import Counts
from fairhorizon.metrics.shares import whole_showings
from fairhorizon.ranking import first_highest, rows_at_once, some_at_a_time

Floats = NDArray[np.float64]
Classes = NDArray[np.int64]
Bools = NDArray[np.bool_]

CLOSED = 1e4  # the price of an item that has nothing remaining: more than scores differ by
CELLS = 2**22  # scores looked at together
NEARLY = 1e-9  # of the largest loss: a class that costs a user this much more is as good
SAMPLE = 256  # users on whom first prices are found


@dataclass(frozen=True)
class ItemClasses:
    """Classes of items; a class is all items with the same costs under every limit."""

    costs: Floats  # (m, C) of the classes
    of_item: Tensor  # (n_items,) the class of each item
    cheaper: Tensor  # (C, C) bool: the second is cheaper than the first under some limit

    @classmethod
    def from_costs(cls, costs: Floats, device: torch.device) -> "ItemClasses":
        """By costs (m, n_items) that are -1, 0 or 1."""
        # a number in base 3, because that sorts fast
        codes = 3 ** np.arange(len(costs)) @ (costs.astype(np.int64) + 1)
        _, examples, of_item = np.unique(codes, return_index=True, return_inverse=True)
        own: Floats = costs[:, examples]
        cheaper = (own[:, None, :] < own[:, :, None]).any(0)
        return cls(own, torch.from_numpy(of_item).to(device), torch.from_numpy(cheaper).to(device))


@dataclass(frozen=True)
class Assignment:
    """What each user is shown at a slot."""

    choice: Classes  # (b,) the class
    items: Classes  # (b,)
    prices: Floats  # (m,) of the budgets
    item_prices: Floats  # (n_items,) the largest loss of a user who was refused the item


class SlotOffers:
    """Each user's best item of each class at one slot, and who is shown which of them.

    scores: (b, n_items), -inf for what may not be shown.
    taken: (b, k) items that the lists have already, -1 for none.
    charges: (n_items,) to be taken off the scores.
    remaining: (n_items,) how often each item may be shown; None: without a bound.

    A limit under retrospective labels lets an item be shown in a step only so often that it does
    not enter the group. Where more users choose an item than it has remaining, those keep it whose
    next best item is the furthest behind; the others choose again, among the items that are not
    full. So this ends after a few rounds. Where all items of a class are full, one of them is the
    last resort: it may enter the group, while an item of another class might break a budget at
    once.
    """

    def __init__(
        self,
        scores: Tensor,
        classes: ItemClasses,
        *,
        taken: Tensor | None = None,
        charges: Tensor | None = None,
        remaining: Counts | None = None,
    ) -> None:
        self.classes, self.remaining = classes, remaining
        if remaining is None:
            # A class that is nowhere cheaper than that of the best item is never needed.
            self._set(*best_of_classes(scores, classes, classes.cheaper, taken, charges))
            return
        # Users may be refused their best item: then any class may be next, and what follows the
        # best of a class is asked for, so the scores as they are now are kept.
        if charges is not None:
            scores = scores - charges
        if taken is not None and taken.shape[1]:
            scores = _without(scores, taken)
        self._scores = scores
        self._full = torch.from_numpy(remaining <= 0).to(scores.device)
        others = ~torch.eye(len(classes.cheaper), dtype=torch.bool, device=scores.device)
        self._set(*best_of_classes(scores.masked_fill(self._full, -torch.inf), classes, others))
        users, own = np.nonzero(self.values == -np.inf)
        self._is_last_resort = np.zeros(self.values.shape, dtype=np.bool_)
        self._replace(users, own, *self._last_resort(users, own), is_last_resort=True)

    def _set(self, values: Tensor, items: Tensor) -> None:
        self.values: Floats = values.double().cpu().numpy()  # (b, C), -inf for no offer
        self.items: Classes = items.cpu().numpy()  # (b, C)

    def withdraw(self, excluded: Bools | None) -> None:
        """Take back the offers of some classes (b, C), but not all of a user's."""
        if excluded is not None:
            left = np.where(excluded, -np.inf, self.values)
            self.values = np.where(left.max(1, keepdims=True) > -np.inf, left, self.values)

    def rows_left(self) -> Classes:
        """The users who have something left to be shown."""
        rows: Classes = np.flatnonzero(self.values.max(1) > -np.inf)
        return rows

    def assign(self, rows: Classes, budgets: Floats) -> Assignment:
        """The offers that these users are shown, within the budgets (m,) and what is remaining."""
        costs = self.classes.costs
        item_prices: Floats = np.zeros(len(self.classes.of_item))
        while True:
            choice, prices = assign_classes(self.values[rows], costs, budgets)
            items = self.items[rows, choice]
            shown = Assignment(choice, items, prices, item_prices)
            if self.remaining is None:
                return shown
            counted = ~self._is_last_resort[rows, choice]
            crowded = np.bincount(items[counted], minlength=len(item_prices)) > self.remaining
            # whoever did not get one of these before is not offered it again
            self._full |= torch.from_numpy(crowded).to(self._full)
            some = np.flatnonzero(crowded[items] & counted)
            users, own = rows[some], choice[some]
            values, following, is_last_resort = self._next_best(users, own)
            loss = self._loss(users, own, values, prices @ costs)
            refused = _refused(items[some], loss, self.remaining)
            if not len(refused):
                return shown
            np.maximum.at(item_prices, items[some[refused]], loss[refused])
            self._replace(
                users[refused],
                own[refused],
                values[refused],
                following[refused],
                is_last_resort=is_last_resort[refused],
            )

    def _replace(
        self,
        users: Classes,
        own: Classes,
        values: Floats,
        items: Classes,
        *,
        is_last_resort: Bools | bool,
    ) -> None:
        """Offer other items of these classes to some users."""
        at = users, own
        self.values[at], self.items[at], self._is_last_resort[at] = values, items, is_last_resort

    def _loss(self, users: Classes, own: Classes, following: Floats, charges: Floats) -> Floats:
        """(b,) by how much the next best offer is behind, all less the charge of its class."""
        net, at = self.values[users] - charges, np.arange(len(users))
        present = net[at, own]
        net[at, own] = following - charges[own]
        loss: Floats = present - net.max(1, initial=-np.inf)
        return loss

    def _next_best(self, users: Classes, own: Classes) -> tuple[Floats, Classes, Bools]:
        """What comes after the best item of these classes, which is full; and if that is full."""
        values, items = self._best(users, own, self._full)
        none_left = values == -np.inf
        values[none_left], items[none_left] = self._last_resort(users[none_left], own[none_left])
        return values, items, none_left

    def _last_resort(self, users: Classes, own: Classes) -> tuple[Floats, Classes]:
        """The best item of these classes, full or not, far behind all others; -inf for nothing."""
        values, items = self._best(users, own, torch.zeros_like(self._full))
        return values - CLOSED, items

    def _best(self, users: Classes, own: Classes, closed: Tensor) -> tuple[Floats, Classes]:
        """Of one class each, some users' best item that is not closed (n_items,)."""
        scores, of_item = self._scores, self.classes.of_item
        values, items = np.zeros(len(users)), np.zeros(len(users), dtype=np.int64)
        for c in np.unique(own):
            of_class, bar = np.flatnonzero(own == c), scores.new_zeros(len(of_item))
            bar[closed | (of_item != c)] = -torch.inf
            size = rows_at_once(len(of_item), CELLS)
            for at in np.split(of_class, range(size, len(of_class), size)):
                rest = scores[torch.from_numpy(users[at]).to(bar.device)].add_(bar)
                best = first_highest(rest)
                values[at] = rest.gather(1, best[:, None])[:, 0].double().cpu().numpy()
                items[at] = best.cpu().numpy()
        return values, items


def _refused(items: Classes, loss: Floats, remaining: Counts) -> Classes:
    """Of the users of each item, all but the `remaining` with the largest loss."""
    order = np.lexsort((-loss, items))
    ordered = items[order]
    rank = np.arange(len(items)) - np.searchsorted(ordered, ordered)
    beyond = order[rank >= remaining[ordered]]
    refused: Classes = beyond[np.isfinite(loss[beyond])]
    return refused


def best_of_classes(
    scores: Tensor,
    classes: ItemClasses,
    needed: Tensor,
    taken: Tensor | None = None,
    charges: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(b, C) the highest score of each class of items, less its charge (n_items,), and its item.

    Only of the class of the best item of all and of those that are `needed` (C, C) where the best
    item is of the first; others are left at -inf. Items `taken` (b, k) are excluded.
    """
    of_item, n_classes = classes.of_item, len(needed)
    values = scores.new_full((len(scores), n_classes), -torch.inf)
    items = of_item.new_zeros(values.shape)
    others = of_item != torch.arange(n_classes).to(of_item)[:, None]  # (C, n_items)
    outside = scores.new_zeros(others.shape).masked_fill_(others, -torch.inf)
    taken = items[:, :0] if taken is None else taken
    for part, part_values, part_items, part_taken in some_at_a_time(scores, values, items, taken):
        if charges is not None:
            part = part - charges
        if taken.shape[1]:
            part = _without(part, part_taken)
        best = first_highest(part)[:, None]
        kind = of_item[best]
        part_values.scatter_(1, kind, part.gather(1, best))  # views: this fills `values`
        part_items.scatter_(1, kind, best)
        for c in range(n_classes):
            some = needed[kind[:, 0], c].nonzero().squeeze(1)
            if len(some):
                of_class = part.index_select(0, some).add_(outside[c])
                best = first_highest(of_class)[:, None]
                part_values[:, c].index_copy_(0, some, of_class.gather(1, best).squeeze(1))
                part_items[:, c].index_copy_(0, some, best.squeeze(1))
    if values.isnan().any():
        raise ModelError("a score is not a number: the model that scores has diverged")
    return values, items


def _without(scores: Tensor, taken: Tensor) -> Tensor:
    """-inf for the items `taken`, of which -1 is none."""
    ceiling = scores.new_full(taken.shape, torch.inf).masked_fill_(taken >= 0, -torch.inf)
    return scores.scatter_reduce(1, taken.clamp(min=0), ceiling, "amin")


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
    gains = np.full(len(values), -np.inf)
    np.subtract(values[:, 1], values[:, 0], out=gains, where=values[:, 1] > -np.inf)
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


def _first_guess(loss: Floats, costs: Floats, budgets: Floats) -> tuple[Classes, Bools]:
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


def _undominated(loss: Floats, costs: Floats) -> Bools:
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
