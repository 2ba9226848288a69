"""The list of one user at given prices, within a cap on every limit: what a request is answered by.

A list is the best one at the prices. Where it would show more of a group than its cap, it is the
best within the caps: exactly so under one limit, where the total is concave in the number of items
of the group. Under several, the list is filled greedily and improved by exchanges of single items;
an integer program, with a bound on its time, is asked only where groups overlap so that greed ends
too early.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from fairhorizon.allocation.best_lists import assigned, bonus_above
from fairhorizon.allocation.candidates import Offer, best_of_each_class
from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, LimitMatrix
from fairhorizon.metrics.shares import ROUNDING, whole_showings

# From the length of a list to caps (m,) on what each limited group counts in it: the first that a
# full list fits into is taken, else the last.
Caps = Callable[[int], Sequence[Floats]]

EXCHANGES = 30  # of single items, at most
FEW_CELLS = 2**12  # limits x classes: a product of so few is faster dense than sparse
SECONDS = 0.2  # that the search for a longer list may take


class Request:
    """One user who asks for a list under limits on all showings.

    A list is given by places among the candidates that some list may need, best value first.
    """

    def __init__(self, offer: Offer, limits: LimitMatrix, kinds: Counts | None = None) -> None:
        """kinds: (n,) the class of each candidate; None: that of the item."""
        kinds = offer.kinds(limits) if kinds is None else kinds
        self.columns = best_of_each_class(offer.order, kinds, limits)
        self.values = offer.values(self.columns)
        self.kinds, self.limits = kinds[self.columns], limits

    @property
    def size(self) -> int:
        """The length of the longest list."""
        return min(self.limits.length, len(self.values))

    @property
    def spread(self) -> float:
        """The standard deviation of the best values; nan for fewer than two."""
        best = self.values[: 2 * self.limits.length]
        if len(best) < 2:
            return np.nan
        # As `std`, which takes four times as long for so few.
        away = best - best.sum() / len(best)
        return math.sqrt(float(away @ away) / len(best))

    def worth(self, at: Counts) -> float:
        """Of a list: the sum of w v."""
        return float(self.values[at] @ self.limits.discounts[: len(at)])

    def counted(self, at: Counts) -> Floats:
        """(m,) what the groups count in a list."""
        members = self._members(at)
        if self.limits.counts_alike:
            alike: Floats = members.sum(1, dtype=np.float64)
            return alike
        total: Floats = (members * self.limits.weights[:, : len(at)]).sum(1)
        return total

    def _members(self, at: Counts) -> Flags:
        """(m, k) whether candidates count under each limit."""
        own: Flags = self.limits.members[:, self.kinds[at]]
        return own

    def keeps(self, at: Counts, room: Floats) -> bool:
        """Whether a list uses no more than the room (m,) beyond the shares."""
        allowed = room + self.limits.shares * self.limits.weights[:, : len(at)].sum(1)
        return bool((self.counted(at) <= allowed + ROUNDING).all())

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
        left, weights = cap + ROUNDING, self.limits.weights
        closed, full = np.zeros(len(self.values), dtype=np.bool_), np.zeros(len(cap), np.bool_)
        chosen: list[int] = []
        for k in range(size):
            now_full = weights[:, k] > left
            if (now_full != full).any():
                full, closed = now_full, self._in_full(now_full)
            worth = np.where(closed, -np.inf, net[k])
            worth[chosen] = -np.inf
            item = int(worth.argmax())
            if worth[item] == -np.inf:
                break
            chosen.append(item)
            left = left - self.limits.members[:, self.kinds[item]] * weights[:, k]
        return self._in_order(np.array(chosen, dtype=np.int64))

    def _in_full(self, full: Flags) -> Flags:
        """(n,), or (k, n) for several (m, k): whether an item is in a group that is full."""
        if self.limits.members.size <= FEW_CELLS:
            closed: Flags = (full.T.astype(np.float32) @ self.limits.members_of_class) > 0
            return closed[..., self.kinds]
        in_full = self.limits.groups_of_class @ full.astype(np.float64) > 0
        many: Flags = in_full.T[..., self.kinds]
        return many

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
        fits = ~self._in_full(weights > left[:, None])  # (places, n)
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
        places, weights = np.arange(size), self.limits.weights[:, :size]
        for _ in range(EXCHANGES if size else 0):
            used = self._members(at) * weights  # (m, places)
            # What leaves a place gives its own room back.
            left = (cap + ROUNDING - used.sum(1))[:, None] + used
            gain = np.where(self._in_full(weights > left), -np.inf, net[:size])
            gain[:, at] = -np.inf
            gain -= net[places, at][:, None]
            place, item = divmod(int(gain.argmax()), gain.shape[1])
            if gain[place, item] <= ROUNDING:
                break
            at[place] = item
            at = self._in_order(at)
        return at


@dataclass(frozen=True)
class ListAlone:
    """The list of one user."""

    at: Counts  # places among the candidates of the request
    prices: Floats  # (m,)
    kept: bool  # whether all limits are
    rounded: bool  # in showings rounded up, as one user has few


def alone(request: Request, room: Floats) -> ListAlone:
    """The list of a user with whom nobody shares the room (m,), which is beyond the shares.

    Caps are enough then. Where a list would be short because shares of its places are less than an
    item, under several limits, showings are rounded up, and if that is not enough, one list more
    may be of a group. The price of one limit is what the list gains by one showing more of it.
    """
    limits, prices, size = request.limits, np.zeros(len(room)), request.size
    best = request.best(prices, size)
    found = request.within(limits.caps_of_one(room), prices, best)
    kept = request.keeps(found, room)
    # At the best list without any limit, one showing more is worth nothing.
    if kept and found is best:
        return ListAlone(found, prices, kept, rounded=False)
    if len(limits) == 1:
        more = request.within(limits.caps_of_one(room + limits.weights.max(1)), prices, best)
        extra = request.counted(more) - request.counted(found)
        if extra[0] > 0:
            prices = max(0.0, request.worth(more) - request.worth(found)) / extra
    if len(limits) == 1 or (kept and len(found) == size):
        return ListAlone(found, prices, kept, rounded=False)
    shares = limits.shares * limits.weights[:, :size].sum(1)
    up = room + np.maximum(0.0, np.ceil(shares - ROUNDING) - shares)
    found = request.within(limits.caps_of_one(up), prices, best)
    if len(found) < size or not request.keeps(found, up):
        up = up + limits.full_list
        found = request.within(limits.caps_of_one(up), prices, best)
    return ListAlone(found, prices, request.keeps(found, up), rounded=True)
