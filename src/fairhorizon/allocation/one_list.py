"""The list of one user at given prices, within a cap on every limit: what a request is answered by.

A list is the best one at the prices. Where it would show more of a group than its cap, it is the
best within the caps: exactly so under one limit, where the total is concave in the number of items
of the group. Under several, the list is filled greedily and improved by exchanges of single items;
an integer program, with a bound on its time, is asked only where groups overlap so that greed ends
too early.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from fairhorizon.allocation.best_lists import assigned, bonus_above
from fairhorizon.allocation.candidates import Values, best_of_each_class
from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, LimitMatrix
from fairhorizon.metrics.shares import ROUNDING, whole_showings

# From the length of a list to caps (m,) on what each limited group counts in it: the first that a
# full list fits into is taken, else the last.
Caps = Callable[[int], Sequence[Floats]]

EXCHANGES = 30  # of single items, at most
SECONDS = 0.2  # that the search for a longer list may take


class Request:
    """One user who asks for a list under limits on all showings.

    A list is given by places among the candidates that some list may need, best value first.
    """

    def __init__(self, values: Values, kinds: Counts, limits: LimitMatrix) -> None:
        """values: (n,) of showing each candidate, NEVER for what may not be shown.  kinds: (n,)
        the class of each."""
        self.columns = best_of_each_class(values, kinds, limits)
        self.values = values[self.columns].astype(np.float64)
        self.kinds, self.limits = kinds[self.columns], limits

    @property
    def size(self) -> int:
        """The length of the longest list."""
        return min(self.limits.length, len(self.values))

    @property
    def spread(self) -> float:
        """The standard deviation of the best values; nan for fewer than two."""
        best = self.values[: 2 * self.limits.length]
        return float(best.std()) if len(best) > 1 else np.nan

    def worth(self, at: Counts) -> float:
        """Of a list: the sum of w v."""
        return float(self.values[at] @ self.limits.discounts[: len(at)])

    def counted(self, at: Counts) -> Floats:
        """(m,) what the groups count in a list."""
        members = self.limits.members[:, self.kinds[at]]
        total: Floats = (members * self.limits.weights[:, : len(at)]).sum(1)
        return total

    def best(self, prices: Floats, size: int) -> Counts:
        """The best list of so many items at the prices (m,)."""
        if not size or not prices.any():
            return np.arange(size)
        net = self._net(prices)[:size]
        # Lifted above 0, so that no place is rather left empty.
        return self._in_order(assigned(net - net.min() + 1.0)[0])

    def within(self, caps: Caps, prices: Floats, best: Counts | None = None) -> Counts:
        """The best list at the prices (m,) that the caps allow; it is as long as it can be.

        best: that of the prices without caps, where it is known.
        """
        size = self.size
        if not size:
            return np.zeros(0, dtype=np.int64)
        best = self.best(prices, size) if best is None else best
        made = []
        for cap in caps(size):
            made.append(self._within(cap, prices, best))
            if len(made[-1]) == size:
                break
        at = max(made, key=len)
        # A shorter list adds less to what was shown, so it may have less of the group.
        while 0 < len(at) < size:
            size = len(at)
            at = self._within(caps(size)[-1], prices, self.best(prices, size))
        return at

    def _within(self, cap: Floats, prices: Floats, best: Counts) -> Counts:
        """The best list of at most so many items as `best`, within caps (m,) on the groups."""
        cap, counted, size = np.maximum(cap, 0.0), self.counted(best), len(best)
        if (counted <= cap + ROUNDING).all():
            return best
        if len(self.limits) == 1 and self.limits.counts_alike:
            # The total is concave in the number of items of the group: as many as the cap allows.
            inside = whole_showings(cap[0])
            group = self.limits.members[0, self.kinds]
            rank, places = group.cumsum(), np.arange(1, len(group) + 1)
            shown = np.where(group, rank <= inside, places - rank <= size - inside)
            at: Counts = shown.nonzero()[0]
            return at
        net = self._net(prices)
        at = self._greedy(net, cap, size)
        if len(at) < size:
            at = max(at, self._by_program(net, cap, size), key=len)
        return self._improved(net, at, cap)

    def _net(self, prices: Floats) -> Floats:
        """(L, n) what an item is worth at a place, less its charge there."""
        worth = self.limits.discounts[:, None] * self.values
        if not prices.any():
            return worth
        return worth - self.limits.charges(prices)[self.kinds].T

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
        worth = known + bonus_above(float(np.abs(known).max()), self.limits)
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
        return at if (self.counted(at) <= cap + ROUNDING).all() else at[:0]

    def _improved(self, net: Floats, at: Counts, cap: Floats) -> Counts:
        """Exchanges of one item of the list for another, as long as one is better and fits."""
        at, size = at.copy(), len(at)
        places = np.arange(size)
        for _ in range(EXCHANGES if size else 0):
            left = cap + ROUNDING - self.counted(at)
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
