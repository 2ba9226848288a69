"""Exposure spread over the catalogue: a price on crowded items keeps a limit on the Gini index.

Lists are chosen by value - mu * log(1 + showings in the lists of others). If all users chose at
once, all would leave the same items for the same others, and return the next time. So the users
choose in parts, one after the other, as in a congestion game, which settles. Each part keeps the
limit of the group given what the others are shown.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairhorizon.allocation.best_lists import BestLists
from fairhorizon.allocation.candidates import NEVER, Candidates, Values, best_columns
from fairhorizon.allocation.limit_matrix import Counts, Floats, LimitMatrix
from fairhorizon.allocation.one_limit import (
    GroupAndRest,
    cut,
    exchange_gains,
    in_order_of_value,
    loss_in_each_list,
    next_of_each,
    within_each_list,
)
from fairhorizon.allocation.prices import lists_at_margin

DEPTH = 10  # candidates per side, in lengths of a list, that are considered
PARTS, MOST_PARTS = 32, 192  # of the users, who choose in turn
SWEEPS = 3  # over all parts at one price: enough for the lists to settle
SPREAD_USERS = 1024  # on whose values the standard deviation is estimated
TRIALS = 16  # of prices, at the most
FIRST_PRICE = 0.05  # on crowded items, in standard deviations of value
HIGH = 2.0  # above this price the search ends if a higher one does not help
CLOSE = 1e-3  # a Gini index this far below the limit is good enough
NARROW = 0.02  # relative distance of a sufficient and an insufficient price that ends the search


@dataclass(frozen=True)
class SpreadTrial:
    """What lists at one price on crowded items have come to."""

    price: float  # of the limit on the group
    mu: float  # on crowded items, in standard deviations of value
    gini: float
    total: float  # sum of w v

    def merit(self, limit: float) -> tuple[bool, float]:
        """Orders trials: within the limit by the total, beyond it by the Gini index."""
        within = self.gini <= limit
        return within, self.total if within else -self.gini


class SpreadUsers:
    """Users who leave crowded items for others of nearly the same value.

    columns: (b, L) the lists to begin with, as columns of the candidates, -1 for none.
    room: what the lists may use of the limit on the group.
    """

    def __init__(
        self, candidates: Candidates, limits: LimitMatrix, columns: Counts, room: float
    ) -> None:
        self.candidates, self.limits, self.room = candidates, limits, room
        self.group, self.columns = limits.of_item == 1, columns.copy()
        self.items = np.broadcast_to(candidates.items, candidates.values.shape)
        self.shown = candidates.lists(columns)
        self.trial = self.shown  # in order of value, once their total was asked for
        self.sides = self._deep_sides()
        self.side_items = np.stack(
            [np.take_along_axis(self.items, side, axis=1) for side in self.sides.columns]
        )
        every = max(1, candidates.n_users // SPREAD_USERS)
        values = self.sides.values[:, ::every]
        known = values[values > -np.inf]
        self.deviation = float(known.std()) if len(known) else 0.0
        self.sweeps = 0

    @property
    def counts(self) -> Counts:
        """(n_items,) how often each item is shown."""
        return np.bincount(self.shown[self.shown >= 0], minlength=len(self.group))

    def sweep(self, mu: float, unit: float, elsewhere: Counts) -> float:
        """All users choose again; the mean price of a place for the group.

        unit: of value, that mu is in.  elsewhere: (n_items,) showings in the lists of other users.
        """
        # The higher the price the fewer choose at once, and never the same users together again.
        parts = int(min(max(PARTS, PARTS * mu), MOST_PARTS)) + self.sweeps % SWEEPS
        parts = max(1, min(parts, self.candidates.n_users))
        self.sweeps += 1
        counts = elsewhere + self.counts
        return sum(self._choose(part, parts, mu * unit, counts) for part in range(parts)) / parts

    def _choose(self, part: int, parts: int, rate: float, counts: Counts) -> float:
        """New lists for some users; the price of a place for the group. `counts` is kept."""
        rows = np.arange(part, self.candidates.n_users, parts)
        left = self.shown[rows]
        counts -= np.bincount(left[left >= 0], minlength=len(counts))
        self.shown[rows] = -1
        offer = self._offered(rows, rate * np.log1p(counts))
        self.columns[rows], price = self._within(offer, self.room - self._used())
        self.shown[rows] = self.candidates.take_users(rows).lists(self.columns[rows])
        taken = self.shown[rows]
        counts += np.bincount(taken[taken >= 0], minlength=len(counts))
        return price

    def _within(self, offer: GroupAndRest, room: float) -> tuple[Counts, float]:
        """(r, L) columns of lists of some users within the room, and the price of the limit."""
        limits = self.limits
        if limits.is_one_plain:
            of_group, price = cut(exchange_gains(offer), offer, float(limits.shares[0]), room)
            return in_order_of_value(offer, of_group), price
        if limits.in_every_list:
            price = loss_in_each_list(offer, limits, None)
            return within_each_list(offer, limits, None), price
        # The group is class 1 whatever its items are; the rest is class 0.
        both = Candidates.checked(
            np.repeat([1, 0], limits.length)[None], np.concatenate(offer.values, axis=1)
        )
        at = np.arange(2 * limits.length).reshape(2, 1, -1)
        sides = GroupAndRest(np.broadcast_to(at, offer.values.shape), offer.values)
        best = BestLists(both, limits.of_classes(), sides=sides)
        prices, tried = lists_at_margin(best, room)
        shown = tried[-1].at
        columns = np.take_along_axis(np.concatenate(offer.columns, axis=1), shown.clip(0), axis=1)
        return np.where(shown < 0, -1, columns), float(prices[0])

    def _used(self) -> float:
        """Of the limit, by those who are shown something."""
        filled = self.shown >= 0
        of_group = filled & self.group[self.shown.clip(0)]
        return float(((of_group - self.limits.shares) * filled).sum(0) @ self.limits.weights[0])

    def _offered(self, rows: Counts, charges: Floats) -> GroupAndRest:
        """The best of both sides for some users, by value less charges (n_items,)."""
        columns, values = [], []
        for side in (0, 1):
            net = self.sides.values[side, rows] - charges[self.side_items[side, rows]]
            at = best_columns(np.maximum(net, NEVER), self.limits.length)
            columns.append(np.take_along_axis(self.sides.columns[side, rows], at, axis=1))
            values.append(np.take_along_axis(net, at, axis=1))
        return GroupAndRest(np.stack(columns), np.stack(values))

    def total(self) -> float:
        """The sum of w v of the lists, put into the order of value."""
        shown, values = self._in_order()
        self.trial = shown
        return float((values @ self.limits.discounts).sum())

    def _in_order(self) -> tuple[Counts, Floats]:
        """(b, L) items and their values; where places count by weight, the group keeps its own."""
        none = self.columns < 0
        values = np.take_along_axis(self.candidates.values, self.columns.clip(0), 1)
        values = np.where(none, -np.inf, values.astype(np.float64))
        of_group = ~none & self.group[self.shown.clip(0)]
        if self.limits.is_one_plain:
            order = np.argsort(-values, axis=1, kind="stable")
        else:
            ranked = [
                np.argsort(np.where(side, -values, np.inf), axis=1, kind="stable")
                for side in (of_group, ~of_group)
            ]
            order = next_of_each(np.stack(ranked), of_group)
        lists = np.take_along_axis(self.shown, order, axis=1)
        values = np.take_along_axis(values, order, axis=1)
        return np.where(none, -1, lists), np.where(none, 0.0, values)

    def _deep_sides(self) -> GroupAndRest:
        """The best candidates of both sides.

        By value where places count by weight, else by what an item adds to its user's list.
        """
        candidates, length = self.candidates, self.limits.length
        if self.limits.is_one_plain:
            listed = np.take_along_axis(candidates.values, self.columns.clip(0), axis=1)
            listed = -np.sort(-np.where(self.columns < 0, -np.inf, listed), axis=1)
            added = marginal_values(candidates.values, listed, self.limits.discounts)
            candidates = Candidates(
                candidates.items, np.where(candidates.values > NEVER, added, NEVER)
            )
        in_group = self.group[candidates.items]
        deep = GroupAndRest.from_candidates(candidates, in_group, DEPTH * length)
        widest = max(length, int(deep.available.max(initial=0)))
        return GroupAndRest(deep.columns[..., :widest], deep.values[..., :widest])


def search_spread(
    limit: float,
    price: float,
    sweep: Callable[[float], float],
    measure: Callable[[], tuple[float, float]],
    keep: Callable[[], object],
) -> SpreadTrial:
    """The price on crowded items that brings the Gini index within the limit at the least loss.

    price: of the limit on the group, of the lists to begin with.
    sweep: all users choose again at a price; the price of the limit.
    measure: the Gini index and the total value of the present lists.
    keep: they are the best so far: within the limit, of the highest total, else the most even.
    """
    best, mu = SpreadTrial(price, 0.0, *measure()), FIRST_PRICE
    keep()
    lower = low = (0.0, best.gini)  # prices and their Gini indices: two that are too low
    high: tuple[float, float] | None = None  # and one that is sufficient
    for _ in range(TRIALS):
        for _ in range(SWEEPS):
            own_price = sweep(mu)
            now = SpreadTrial(own_price, mu, *measure())
            if now.merit(limit) > best.merit(limit):
                best = now
                keep()
        if now.gini <= limit:
            high = (mu, now.gini)
        else:
            lower, low = low, (mu, now.gini)
        close = limit - CLOSE < now.gini <= limit
        narrow = high is not None and high[0] - low[0] < NARROW * high[0]
        hopeless = high is None and mu > HIGH and lower[1] - low[1] < CLOSE
        if close or narrow or hopeless:
            break
        mu = _next_price(lower, low, high, limit - CLOSE / 2)
    return best


def marginal_values(values: Values, listed: Values, weights: Floats) -> Floats:
    """(b, n) what items of these values add to lists of falling values (b, L), padded with -inf.

    Removing the item at place j moves all behind it up by one. So the part of a value that lies
    between those at places j and j + 1 counts w_j, and the part below all of them w_L.
    """
    filled, n = listed > -np.inf, len(weights)
    last = np.where(filled, listed, np.inf).min(1, keepdims=True)
    last = np.where(last < np.inf, last, 0.0)
    listed = np.where(filled, listed, last)  # the last one repeated: no gap, no weight
    gaps = (listed[:, :-1] - listed[:, 1:]) * weights[:-1]
    added = np.concatenate([gaps, last * weights[-1]], axis=1)[:, ::-1].cumsum(1)[:, ::-1]
    above = np.zeros(values.shape, dtype=np.int64)  # how many of the list are higher: 0..n
    for place in range(n):
        above += listed[:, place, None] > values
    below = np.minimum(above, n - 1)
    slope = weights[(above - 1).clip(0)]
    change = slope * (values - np.take_along_axis(listed, below, axis=1))
    total: Floats = np.take_along_axis(added, below, axis=1) + change
    return total


def _next_price(
    lower: tuple[float, float],
    low: tuple[float, float],
    high: tuple[float, float] | None,
    aim: float,
) -> float:
    """Close to where the line through two prices and their Gini indices reaches the aim."""
    if high is not None:
        part = (low[1] - aim) / (low[1] - high[1])
        return low[0] + min(max(part, 0.1), 0.9) * (high[0] - low[0])
    fall = (lower[1] - low[1]) / (low[0] - lower[0])
    rise = (low[1] - aim) / fall if fall > 0 else np.inf
    return min(max(low[0] + rise, 1.5 * low[0]), 8 * low[0])
