"""The list of one user at given prices, within a cap on every limit: what a request is answered by.

A list is the best one at the prices. Where it would show more of a group than its cap, it is the
best within the caps: exactly so under one limit, where the total is concave in the number of items
of the group. Under several, the list is filled greedily and improved by exchanges of single items;
an integer program, with a bound on its time, is asked only where groups overlap so that greed ends
too early.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol as Interface

import numpy as np

from fairhorizon.allocation.best_lists import BestLists, assigned
from fairhorizon.allocation.candidates import Candidates, Values, best_of_each_class
from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, LimitMatrix
from fairhorizon.allocation.margin import all_lists
from fairhorizon.allocation.one_limit import OneLimit, Sides, in_order_of_value
from fairhorizon.exposure.place_rule import PlaceRule
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.shares import ROUNDING, whole_showings

EXCHANGES = 30  # of single items, at most


class Request(Interface):
    """The candidates of one user under limits; lists are columns of the values it was made of."""

    @property
    def size(self) -> int:
        """The length of the longest list."""

    @property
    def spread(self) -> float:
        """The standard deviation of the best values; nan for fewer than two."""

    def wanted(self, prices: Floats) -> Floats:
        """(m,) what the groups count in the best list at the prices (m,)."""

    def list(self, prices: Floats, cap: Floats, most: int | None = None) -> Counts:
        """The best list of at most `most` items at the prices, within the caps (m,) on what the
        groups count in it; it is as long as it can be."""

    def counted(self, at: Counts) -> Floats:
        """(m,) what the groups count in a list."""


def request_of(values: Values, kinds: Counts, limits: LimitMatrix) -> Request:
    """The request of one user.

    values: (n,) of showing each candidate, NEVER for what may not be shown.
    kinds: (n,) the class of each.
    """
    if len(limits) == 1 and limits.counts_alike:
        return group_requests(values[None], limits.members[0][kinds][None], limits.length)[0]
    return SeveralLimitsRequest(values, kinds, limits)


@dataclass(frozen=True)
class OneLimitRequest:
    """A request under one limit on all showings, which count alike."""

    sides: Sides  # of this user alone, the group first
    gains: Floats  # (L,) of one more place for the group

    @property
    def size(self) -> int:
        return int(self.sides.sizes[0])

    @cached_property
    def spread(self) -> float:
        known = self.sides.values[self.sides.values > -np.inf]
        return float(known.std()) if len(known) > 1 else np.nan

    def wanted(self, prices: Floats) -> Floats:
        return np.array([self._wanted(float(prices[0]), self.sides, self.gains)], dtype=np.float64)

    def _wanted(self, price: float, sides: Sides, gains: Floats) -> int:
        """How many of the best list are of the group: as long as one more gains more than it costs,
        and where there is nothing else."""
        return int((sides.forced[0] | (gains > max(price, 0.0))).sum())

    def list(self, prices: Floats, cap: Floats, most: int | None = None) -> Counts:
        sides, gains = self.sides, self.gains
        if most is not None and most < self.size:
            sides = Sides(sides.columns[..., :most], sides.values[..., :most])
            gains = _plain(most).gains(sides)[0]
        allowed = max(0, whole_showings(min(float(cap[0]), self.size)))
        of_group = min(self._wanted(float(prices[0]), sides, gains), allowed)
        placed = in_order_of_value(sides, np.array([of_group]))
        return placed.columns(sides)[0, : int(placed.sizes[0])]

    def counted(self, at: Counts) -> Floats:
        (own,) = self.sides.values[0] > -np.inf
        return np.array([np.isin(at, self.sides.columns[0, 0, own]).sum()], dtype=np.float64)


def group_requests(values: Values, group: Flags, length: int) -> list[OneLimitRequest]:
    """The requests of some users with candidates of these values (b, n), and which of them are of
    the limited group (b, n): prepared together."""
    columns = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    sides = Sides.from_flags(Candidates(columns, values), group, length)
    gains = _plain(length).gains(sides)
    return [
        OneLimitRequest(sides.of_users(slice(row, row + 1)), gains[row])
        for row in range(len(values))
    ]


def _plain(length: int) -> OneLimit:
    """A limit on all showings, which count alike; only the weights of its places matter here."""
    weights = discount(np.arange(1, length + 1))
    return OneLimit(PlaceRule(1.0), weights, length, np.zeros((0, 0), dtype=np.bool_))


class SeveralLimitsRequest:
    """A request under several limits, or under one that counts by place."""

    def __init__(self, values: Values, kinds: Counts, limits: LimitMatrix) -> None:
        self.columns = best_of_each_class(values, kinds, limits)  # best value first
        self.values = values[self.columns].astype(np.float64)
        self.kinds, self.limits = kinds[self.columns], limits
        self.members = limits.members[:, self.kinds]  # (m, n)
        self.weights = discount(np.arange(1, limits.length + 1))

    @property
    def size(self) -> int:
        return min(self.limits.length, len(self.values))

    @cached_property
    def spread(self) -> float:
        best = self.values[: 2 * self.limits.length]
        return float(best.std()) if len(best) > 1 else np.nan

    def wanted(self, prices: Floats) -> Floats:
        return self._counted(self._best(self._net(prices), self.size))

    def list(self, prices: Floats, cap: Floats, most: int | None = None) -> Counts:
        size = self.size if most is None else min(most, self.size)
        net = self._net(prices)
        at = self._best(net, size)
        if (self._counted(at) > cap + ROUNDING).any():
            at = self._greedy(net, cap, size)
            if len(at) < size:
                at = max(at, self._by_program(cap, size), key=len)
            at = self._improved(net, at, cap)
        return self.columns[at]

    def counted(self, at: Counts) -> Floats:
        place_of = np.full(self.columns.max(initial=-1) + 1, -1)
        place_of[self.columns] = np.arange(len(self.columns))
        return self._counted(place_of[at])

    def _counted(self, at: Counts) -> Floats:
        total: Floats = (self.members[:, at] * self.limits.weights[:, : len(at)]).sum(1)
        return total

    def _net(self, prices: Floats) -> Floats:
        """(L, n) what an item is worth at a place, less its charge there."""
        worth = self.weights[:, None] * self.values
        if not prices.any():
            return worth
        return worth - self.limits.charges(prices)[self.kinds].T

    def _best(self, net: Floats, size: int) -> Counts:
        """(size,) the list of the highest net worth, as long as it can be."""
        if not size:
            return np.zeros(0, dtype=np.int64)
        # Lifted above 0, so that no place is rather left empty.
        return assigned(net[:size] - net.min() + 1.0)[0]

    def _greedy(self, net: Floats, cap: Floats, size: int) -> Counts:
        """Place after place the item of the highest net worth whose groups all have room."""
        left = cap + ROUNDING
        free = np.ones(len(self.values), dtype=np.bool_)
        chosen: list[int] = []
        for k in range(size):
            open_items = free & ~self._full(left, k)
            if not open_items.any():
                break
            item = int(np.where(open_items, net[k], -np.inf).argmax())
            chosen.append(item)
            free[item] = False
            left = left - self.members[:, item] * self.limits.weights[:, k]
        return self._in_order(np.array(chosen, dtype=np.int64))

    def _full(self, left: Floats, place: int) -> Flags:
        """(n,) whether an item is in a group that has no room for it at a place."""
        full = self.limits.weights[:, place] > left
        return np.asarray(self.members[full].any(axis=0), dtype=np.bool_)

    def _in_order(self, at: Counts) -> Counts:
        """In the order of value, where all places count alike."""
        return np.sort(at) if self.limits.counts_alike else at

    def _by_program(self, cap: Floats, size: int) -> Counts:
        """The longest list within the caps, by an integer program; empty if none is found."""
        # Caps are on what the groups themselves count, so no share of the list is taken off.
        limits = LimitMatrix(
            rules=self.limits.rules,
            length=size,
            of_item=self.kinds,
            members=self.limits.members,
            shares=np.zeros(len(self.limits)),
            weights=self.limits.weights[:, :size],
        )
        codes = np.arange(len(self.values))[None]
        bonus = BestLists.bonus_above(float(np.abs(self.values).max(initial=0.0)), size)
        best = BestLists(Candidates(codes, self.values[None]), limits, bonus)
        found = all_lists(best, np.minimum(cap, self.limits.full_list))
        if found is None:
            return np.zeros(0, dtype=np.int64)
        at: Counts = found[0][found[0] >= 0]
        return at if (self._counted(at) <= cap + ROUNDING).all() else at[:0]

    def _improved(self, net: Floats, at: Counts, cap: Floats) -> Counts:
        """Exchanges of one item of the list for another, as long as one is better and fits."""
        at, size = at.copy(), len(at)
        places = np.arange(size)
        for _ in range(EXCHANGES if size else 0):
            left = cap + ROUNDING - self._counted(at)
            gain = net[:size] - net[places, at][:, None]
            gain[:, at] = -np.inf
            for k in range(size):
                # What leaves a place gives its own room back.
                back = left + self.members[:, at[k]] * self.limits.weights[:, k]
                gain[k, self._full(back, k)] = -np.inf
            place, item = np.unravel_index(int(gain.argmax()), gain.shape)
            if gain[place, item] <= ROUNDING:
                break
            at[place] = item
            at = self._in_order(at)
        return at
