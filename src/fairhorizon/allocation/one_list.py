"""The list of one user at given prices, within a cap on every limit: what a request is answered by.

A list is the best one at the prices. Where it would show more of a group than its cap, it is the
best within the caps: exactly so under one limit, where the total is concave in the number of items
of the group. Under several, the list is filled greedily and improved by exchanges of single items;
an integer program, with a bound on its time, is asked only where groups overlap so that greed ends
too early.
"""

import math
import operator
from bisect import bisect_left
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from fairhorizon.allocation.best_lists import BestLists, assigned
from fairhorizon.allocation.candidates import NEVER, Values, best_of_each_class, highest
from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, LimitMatrix
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.shares import ROUNDING

EXCHANGES = 30  # of single items, at most
SECONDS = 0.2  # that the search for a longer list may take


class GroupRequest:
    """A request under one limit on all showings, which count alike.

    A list is the best c of the group and the best of the rest, and its total is concave in c. There
    are few numbers, and plain ones are faster than arrays.
    """

    def __init__(self, values: Values, group: Flags, length: int) -> None:
        """values: (n,) of the candidates, NEVER for none.  group: (n,) whether limited."""
        there = values > NEVER
        self._columns: list[list[int]] = []  # of the best of the group and of the rest, best first
        self._values: list[list[float]] = []
        for side in (there & group, there & ~group):
            (own,) = side.nonzero()
            best = own[highest(values[own], length)]
            self._columns.append(best.tolist())
            self._values.append(values[best].tolist())
        self.available, self._others = map(len, self._columns)
        self.size = min(length, self.available + self._others)
        self._weights: list[float] = discount(np.arange(1, length + 1)).tolist()

    @property
    def spread(self) -> float:
        """The standard deviation of the best values of both sides; nan for fewer than two."""
        values = [*self._values[0], *self._values[1]]
        if len(values) < 2:
            return math.nan
        mean = sum(values) / len(values)
        return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))

    def wanted(self, price: float) -> int:
        """How many of the best list are of the group: as long as one more gains more than it costs,
        and where there is nothing else."""
        forced, most = max(0, self.size - self._others), min(self.size, self.available)
        # Negated, gains rise as a search by halves expects.
        return bisect_left(range(most), -price, lo=min(forced, most), key=self._loss)

    def _loss(self, of_group: int) -> float:
        return self._total(of_group) - self._total(of_group + 1)

    def _total(self, of_group: int) -> float:
        group, rest = self._values
        values = sorted(group[:of_group] + rest[: self.size - of_group], reverse=True)
        return math.fsum(map(operator.mul, self._weights, values))

    def size_with(self, of_group: int) -> int:
        """The length of a list with so many of the group."""
        return of_group + min(self._others, self.size - of_group)

    def list(self, of_group: int) -> Counts:
        """The columns of the list with so many of the group, best value first."""
        of_rest = min(self._others, self.size - of_group)
        values = self._values[0][:of_group] + self._values[1][:of_rest]
        columns = self._columns[0][:of_group] + self._columns[1][:of_rest]
        order = sorted(range(len(values)), key=values.__getitem__, reverse=True)
        return np.array([columns[place] for place in order], dtype=np.int64)


class SeveralLimitsRequest:
    """A request under several limits, or under one that counts by place."""

    def __init__(self, values: Values, kinds: Counts, limits: LimitMatrix) -> None:
        """values: (n,) of showing each candidate, NEVER for what may not be shown.  kinds: (n,)
        the class of each."""
        self.columns = best_of_each_class(values, kinds, limits)  # best value first
        self.values = values[self.columns].astype(np.float64)
        self.kinds, self.limits = kinds[self.columns], limits
        self.weights = discount(np.arange(1, limits.length + 1))

    @property
    def size(self) -> int:
        """The length of the longest list."""
        return min(self.limits.length, len(self.values))

    @property
    def most_worth(self) -> float:
        """What the best list without any limit is worth."""
        return float(self.values[: self.size] @ self.weights[: self.size])

    @cached_property
    def spread(self) -> float:
        """The standard deviation of the best values; nan for fewer than two."""
        best = self.values[: 2 * self.limits.length]
        return float(best.std()) if len(best) > 1 else np.nan

    def wanted(self, prices: Floats) -> Floats:
        """(m,) what the groups count in the best list at the prices (m,)."""
        return self._counted(self._best(self._net(prices), self.size))

    def list(self, prices: Floats, cap: Floats, most: int | None = None) -> Counts:
        """The best list of at most `most` items at the prices (m,), within the caps (m,) on what
        the groups count in it; it is as long as it can be."""
        size = self.size if most is None else min(most, self.size)
        net = self._net(prices)
        at = self._best(net, size)
        if (self._counted(at) > cap + ROUNDING).any():
            at = self._greedy(net, cap, size)
            if len(at) < size:
                at = max(at, self._by_program(net, cap, size), key=len)
            at = self._improved(net, at, cap)
        return self.columns[at]

    def counted(self, at: Counts) -> Floats:
        """(m,) what the groups count in a list of these columns."""
        place_of = np.full(self.columns.max(initial=-1) + 1, -1)
        place_of[self.columns] = np.arange(len(self.columns))
        return self._counted(place_of[at])

    def _counted(self, at: Counts) -> Floats:
        members = self.limits.members[:, self.kinds[at]]
        total: Floats = (members * self.limits.weights[:, : len(at)]).sum(1)
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
        return self._in_order(assigned(net[:size] - net.min() + 1.0)[0])

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
            left = left - self._use(item, k)
        return self._in_order(np.array(chosen, dtype=np.int64))

    def _use(self, item: int, place: int) -> Floats:
        """(m,) what an item counts at a place."""
        used: Floats = self.limits.members[:, self.kinds[item]] * self.limits.weights[:, place]
        return used

    def _full(self, left: Floats, place: int) -> Flags:
        """(n,) whether an item is in a group that has no room for it at a place."""
        full = (self.limits.weights[:, place] > left).astype(np.float64)
        closed: Flags = (self.limits.groups_of_class @ full > 0)[self.kinds]
        return closed

    def _in_order(self, at: Counts) -> Counts:
        """In the order of value, where all places count alike."""
        return np.sort(at) if self.limits.counts_alike else at

    def _by_program(self, net: Floats, cap: Floats, size: int) -> Counts:
        """The longest list within the caps, by an integer program; empty if none is found."""
        weights = self.limits.weights[:, :size]
        # Where places count alike they are one place for `size` items.
        if self.limits.counts_alike:
            weights, net, seats = weights[:, :1], net[:1], np.array([size])
        else:
            net, seats = net[:size], np.ones(size, dtype=np.int64)
        left = cap + ROUNDING
        fits = np.stack([~self._full(left, k) for k in range(len(seats))])  # (places, n)
        if fits.any(0).sum() < size and self.limits.counts_alike:
            return np.zeros(0, dtype=np.int64)
        place, item = fits.nonzero()
        if not len(item):
            return np.zeros(0, dtype=np.int64)
        known = net[place, item]
        worth = known + BestLists.bonus_above(float(np.abs(known).max()), size)
        one = np.ones(len(item))
        columns = np.arange(len(item))
        at_place = sparse.csr_array((one, (place, columns)), shape=(len(seats), len(item)))
        once = sparse.csr_array((one, (item, columns)), shape=(len(self.values), len(item)))
        use = self.limits.members[:, self.kinds[item]] * weights[:, place]
        constraints = [
            LinearConstraint(at_place, ub=seats),
            LinearConstraint(once, ub=1),
            LinearConstraint(sparse.csr_array(use), ub=left),
        ]
        if len(seats) > 1:  # no empty place before a filled one
            constraints.append(LinearConstraint(at_place[1:] - at_place[:-1], ub=0))
        options = {"mip_rel_gap": 1e-6, "time_limit": SECONDS}
        # Worth is scaled to 1, the size that the tolerances of the solver are made for.
        scaled = -worth / worth.max()
        found = milp(
            scaled, integrality=one, bounds=(0, 1), constraints=constraints, options=options
        )
        if found.x is None:
            return np.zeros(0, dtype=np.int64)
        taken = found.x > 0.5
        at = self._in_order(item[taken][np.argsort(place[taken], kind="stable")])
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
                back = left + self._use(at[k], k)
                gain[k, self._full(back, k)] = -np.inf
            place, item = np.unravel_index(int(gain.argmax()), gain.shape)
            if gain[place, item] <= ROUNDING:
                break
            at[place] = item
            at = self._in_order(at)
        return at
