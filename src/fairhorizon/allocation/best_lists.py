"""The best list of every user at given prices of the limits: users are independent of each other.

    maximise over lists   sum_k  w_k v(i_k) - charge(class of i_k, k) + bonus

v: value of showing an item to a user;  w: weights of the places, which never rise;  the bonus for a
filled place is higher than any value, so that lists are as long as the limits allow.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment

from fairhorizon.allocation.candidates import NEVER, Candidates, undominated
from fairhorizon.allocation.limit_matrix import Counts, Floats, LimitMatrix
from fairhorizon.allocation.one_limit import GroupAndRest, best_merges

# Candidates are kept for prices this many times farther away than the search expects to go; each
# time that was not far enough, for prices this much farther still.
WIDER, GROWTH = 2.0, 1.5
USERS_AT_ONCE = 1024


@dataclass(frozen=True)
class Lists:
    """A list of each user: where its items stand among the candidates, and what it comes to."""

    at: Counts  # (b, L) columns; -1 behind the end of the list
    worth: Floats  # (b,) sum of w v, with the bonus of every filled place
    use: Floats  # (b, m) of each limit


class BestLists:
    """Makes the best lists of some users at any prices."""

    def __init__(
        self,
        candidates: Candidates,
        limits: LimitMatrix,
        *,
        bonus: float | None = None,
        sides: GroupAndRest | None = None,
        sizes: Counts | None = None,
    ) -> None:
        """bonus: of a filled place; None: more than any list can gain by leaving one empty.
        sides: of one limit, where they are known.  sizes: (b,) of all lists, under one limit."""
        self.candidates, self.limits, self._bonus = candidates, limits, bonus
        self._sizes = sizes
        if sides is not None:
            self.sides = sides
        self._low, self._high = np.full(len(limits), np.inf), np.full(len(limits), -np.inf)
        self._kept: list[_Contenders] = []
        self._wider = WIDER

    @cached_property
    def bonus(self) -> float:
        """Of a filled place."""
        known = self._bonus
        return bonus_above(self.candidates.largest, self.limits) if known is None else known

    @cached_property
    def kinds(self) -> Counts:
        """(b, n), or (1, n) for all users: the classes of the candidates."""
        classes: Counts = self.limits.of_item[self.candidates.items]
        return classes

    @cached_property
    def sides(self) -> GroupAndRest:
        """Of one limit: the best candidates of its group, and of the rest."""
        in_group = (self.limits.of_item == 1)[self.candidates.items]
        return GroupAndRest.from_candidates(self.candidates, in_group, self.limits.length)

    @cached_property
    def sizes(self) -> Counts:
        """(b,) the lengths of the longest lists."""
        longest: Counts = np.minimum(self.candidates.there.sum(1), self.limits.length)
        return longest

    @property
    def n_users(self) -> int:
        return self.candidates.n_users

    def of_users(self, rows: Counts) -> "BestLists":
        """The same for some of the users."""
        return BestLists(self.candidates.take_users(rows), self.limits, bonus=self.bonus)

    def at_prices(self, prices: Floats, reach: float) -> tuple[Lists, Floats]:
        """The best lists at the prices (m,) of the limits, and (b,) their merit as above.

        reach: how far from these the prices of the next calls probably are.
        """
        charges = self.limits.charges(prices) - self.bonus
        if len(self.limits) == 1:
            at = best_merges(self.sides, self.limits.discounts, charges[::-1], self._sizes)
            lists = self.lists(at)
            return lists, lists.worth - lists.use @ prices
        self._look_near(prices, reach)
        best = _by_value if self.limits.counts_alike else _by_place
        at = np.full((self.n_users, self.limits.length), -1, dtype=np.int64)
        merits = np.zeros(self.n_users)
        for kept in self._kept:
            places, merits[kept.rows] = best(
                kept.values, kept.kinds, charges, self.limits.discounts
            )
            columns = np.take_along_axis(kept.columns, places.clip(0), axis=1)
            at[kept.rows] = np.where(places < 0, -1, columns)
        return self.lists(at), merits

    def lists(self, at: Counts) -> Lists:
        """What lists of these columns (b, L) are worth and use."""
        return Lists(at, self.values(at) + self.bonus * (at >= 0).sum(1), self.use(at))

    def values(self, at: Counts) -> Floats:
        """(b,) the sum of w v of lists of these columns (b, L)."""
        shown = np.where(at < 0, 0.0, np.take_along_axis(self.candidates.values, at.clip(0), 1))
        total: Floats = shown @ self.limits.discounts
        return total

    def use(self, at: Counts) -> Floats:
        """(b, m) what lists of these columns use of each limit."""
        classes = np.where(at < 0, -1, self.limits.of_item[self.candidates.lists(at)])
        return self.limits.use(classes)

    def _look_near(self, prices: Floats, reach: float) -> None:
        """Keep the candidates that lists may have at prices around these."""
        if not self.n_users or ((self._low <= prices).all() and (prices <= self._high).all()):
            return
        # Most limits without a price stay so: with no range of it, fewer candidates are kept.
        near = np.where(prices > 0, self._wider * reach, 0.0)
        self._wider *= GROWTH
        self._low, self._high = np.maximum(0.0, prices - near), prices + near
        least, most = self.limits.charge_range(self._low, self._high)
        blocks = np.array_split(np.arange(self.n_users), -(-self.n_users // USERS_AT_ONCE))
        kept = []
        for rows in blocks:
            kinds = self.kinds if len(self.kinds) == 1 else self.kinds[rows]
            values = self.candidates.values[rows]
            kept.append(undominated(values, kinds, least, most, self.limits.discounts))
        counts = np.concatenate([(some >= 0).sum(1) for some in kept])
        table = np.full((self.n_users, max(1, counts.max(initial=1))), -1, dtype=np.int64)
        for rows, some in zip(blocks, kept, strict=True):
            table[rows, : some.shape[1]] = some
        self._kept = []
        # Users with as many candidates together, so that blocks are as wide as they need to be.
        order = np.argsort(counts, kind="stable")
        for block in blocks:
            rows = order[block]
            columns = table[rows, : max(1, counts[rows].max(initial=1))]
            own = self.candidates.take_users(rows).take(columns)
            kinds = self.limits.of_item[own.items]
            self._kept.append(_Contenders(rows, columns, own.values.astype(np.float64), kinds))


def bonus_above(largest: float, limits: LimitMatrix) -> float:
    """Of a filled place: more than any list can gain by leaving it empty.

    largest: of the absolute values.
    """
    return 1 + 4 * largest * float(limits.discounts.sum())


@dataclass(frozen=True)
class _Contenders:
    """Candidates of some users that may be in a best list, best value first."""

    rows: Counts  # which users
    columns: Counts  # (r, n') of their candidates, -1 for none
    values: Floats  # (r, n')
    kinds: Counts  # (r, n') classes


def _by_value(
    values: Floats, kinds: Counts, charges: Floats, weights: Floats
) -> tuple[Counts, Floats]:
    """Lists (b, L) in order of value, where a charge is the same at every place.

    best[k] is the highest merit of k of the candidates so far; the next one is not among them, or
    is the last of them, at place k.
    """
    charge, by_item = charges[:, 0][kinds].T, values.T  # (n, b)
    n, b = by_item.shape
    length, users = len(weights), np.arange(b)
    best = np.full((length + 1, b), -np.inf)
    best[0] = 0.0
    taken = np.zeros((n, length, b), dtype=np.bool_)
    place, shorter, longer = weights[:, None], best[:-1], best[1:]
    with_it = np.empty_like(longer)
    for item, its_charge, is_better in zip(by_item, charge, taken, strict=True):
        np.multiply(place, item, out=with_it)
        np.subtract(with_it, its_charge, out=with_it)
        np.add(shorter, with_it, out=with_it)
        np.greater(with_it, longer, out=is_better)
        np.maximum(longer, with_it, out=longer)
    left = best.argmax(0)
    merit = best[left, users]
    at = np.full((b, length), -1, dtype=np.int64)
    if b * length < n:  # a step for every place is less than one for every candidate
        for user in range(b):
            before = n
            for k in range(left[user] - 1, -1, -1):
                before = at[user, k] = taken[:before, k, user].nonzero()[0][-1]
        return at, merit
    for i in range(n - 1, -1, -1):
        rows = (taken[i][left - 1, users] & (left > 0)).nonzero()[0]
        at[rows, left[rows] - 1] = i
        left[rows] -= 1
    return at, merit


def _by_place(
    values: Floats, kinds: Counts, charges: Floats, weights: Floats
) -> tuple[Counts, Floats]:
    """Lists (b, L) where a charge depends on the place: an assignment of items to places."""
    b, length = len(values), len(weights)
    at = np.full((b, length), -1, dtype=np.int64)
    merit = np.zeros(b)
    for u in range(b):
        n = int((values[u] > NEVER).sum())
        net = weights[:, None] * values[u, :n] - charges[kinds[u, :n]].T
        at[u], merit[u] = assigned(net)
    return at, merit


def assigned(net: Floats) -> tuple[Counts, float]:
    """The items at the places of the list with the highest sum of net merits (L, n), and that sum.

    A place is left empty rather than filled at a loss; only places at the end are, by -1.
    """
    length, n = net.shape
    some = np.arange(n)
    if n > 2 * length:
        # An item that is among the best `length` of no place never has to be taken.
        bar = np.partition(net, n - length, axis=1)[:, n - length]
        some = np.flatnonzero((net >= bar[:, None]).any(0))
        net = net[:, some]
    places, items, total = _assigned(net)
    if len(places) and places[-1] >= len(places):  # no gaps: as many places, from the first on
        places, items, _ = _assigned(net[: len(places)])
    found = np.full(length, -1, dtype=np.int64)
    found[: len(items)] = some[items[np.argsort(places)]]
    return found, total


def _assigned(net: Floats) -> tuple[Counts, Counts, float]:
    length, n = net.shape
    if n < length or net.min(initial=0.0) < 0:
        net = np.hstack([net, np.zeros((length, length))])
    places, items = linear_sum_assignment(net, maximize=True)
    filled = items < n
    return places[filled], items[filled], float(net[places, items].sum())
