"""The best list of every user at given prices of the rules: users are independent of each other.

    maximise over lists   sum_k  w_k v(i_k) - charge(class of i_k, k) + bonus

v: value of showing an item to a user;  w: weights of the places, which never rise;  the bonus for a
filled place is higher than any value, so that lists are as long as the limits allow.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fairhorizon.allocation.several.terms import SMALL, Counts, Floats, Terms

NEVER = -1e30  # the value of a candidate that is not there; no charge is as high
DEEP = (1, 2, 4)  # in lengths of a list, the best candidates that others are compared with
WIDER = 2.0  # candidates are kept for prices that are so much farther away than asked for
USERS_AT_ONCE = 1024


@dataclass(frozen=True)
class Offers:
    """What each user may be shown."""

    values: NDArray[np.floating[Any]]  # (b, n); NEVER where there is no candidate
    classes: Counts  # (b, n), or (1, n) where they are the same for all users

    def of(self, rows: slice | Counts) -> "Offers":
        return Offers(self.values[rows], self.classes if self._same else self.classes[rows])

    def at(self, columns: Counts) -> "Offers":
        """Those in the columns (b, n') of each user, -1 for none."""
        some = columns.clip(0)
        values = np.take_along_axis(self.values, some, axis=1).astype(np.float64)
        classes = self.classes[0][some] if self._same else np.take_along_axis(self.classes, some, 1)
        return Offers(np.where(columns < 0, NEVER, values), classes)

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        known = self.values[self.values > NEVER]
        return float(np.abs(known).max()) if len(known) else 0.0

    @property
    def _same(self) -> bool:
        return len(self.classes) == 1


@dataclass(frozen=True)
class Lists:
    """A list of each user: where its items stand in the offers, its worth, its use of the rules."""

    at: Counts  # (b, L); -1 behind the end of the list
    worth: Floats  # (b,) sum of w v, with the bonus of every filled place
    use: Floats  # (b, m)


class BestLists:
    """Makes the best lists at any prices."""

    def __init__(
        self,
        offers: Offers,
        terms: Terms,
        weights: Floats,
        largest: float | None = None,
        of_users: int | None = None,
    ) -> None:
        """largest, of_users: the largest value and the number of all users, if these are some."""
        self.terms, self.weights = terms, weights
        self.largest = offers.largest if largest is None else largest
        self.bonus = 1 + 4 * self.largest * float(weights.sum())
        users = len(offers.values) if of_users is None else of_users
        self.many = users * terms.length * len(terms.rules) > SMALL
        self.offers = offers
        self._forget()

    def _forget(self) -> None:
        self._covered = (np.full(len(self.terms.rules), np.inf), np.zeros(0))  # none
        self._kept: list[_Contending] = []

    @property
    def n_users(self) -> int:
        return len(self.offers.values)

    def of(self, rows: Counts) -> "BestLists":
        """For some of the users."""
        some = object.__new__(BestLists)
        some.terms, some.weights = self.terms, self.weights
        some.bonus, some.largest, some.many = self.bonus, self.largest, self.many
        some.offers = self.offers.of(rows)
        some._forget()
        return some

    def at_prices(self, prices: Floats, reach: Floats) -> tuple[Lists, Floats]:
        """The best lists at the prices (m,) of the rules, and (b,) their merit as above.

        reach: (m,) how far from these the prices of the next calls probably are.
        """
        self._look_near(prices, reach)
        charges = self.terms.charges(prices) - self.bonus
        best = _by_value if self.terms.alike else _by_place
        at = np.full((self.n_users, self.terms.length), -1, dtype=np.int64)
        merits = np.zeros(self.n_users)
        for kept in self._kept:
            places, merits[kept.rows] = best(kept.offers, charges, self.weights)
            columns = np.take_along_axis(kept.columns, places.clip(0), axis=1)
            at[kept.rows] = np.where(places < 0, -1, columns)
        return self.lists(at), merits

    def assigned(self, prices: Floats) -> tuple[Lists, Floats]:
        """As `at_prices`, from all offers, of few users: then an assignment is the fastest."""
        charges = self.terms.charges(prices) - self.bonus
        at, merit = _by_place(self.offers, charges, self.weights)
        return self.lists(at), merit

    def lists(self, at: Counts) -> Lists:
        """What these lists are worth and use."""
        some = self.offers.at(at)
        values = np.where(at < 0, 0.0, some.values)
        worth = (values * self.weights).sum(1) + self.bonus * (at >= 0).sum(1)
        classes = np.where(at < 0, -1, some.classes)
        return Lists(at, worth, self.terms.use(classes, many=self.many))

    def _look_near(self, prices: Floats, reach: Floats) -> None:
        """Keep the candidates that lists may have at prices around these."""
        low, high = self._covered
        if not self.n_users or (len(high) and (low <= prices).all() and (prices <= high).all()):
            return
        self._covered = np.maximum(0.0, prices - WIDER * reach), prices + WIDER * reach
        least, most = self.terms.charge_range(*self._covered)
        blocks = np.array_split(np.arange(self.n_users), -(-self.n_users // USERS_AT_ONCE))
        kept = [undominated(self.offers.of(rows), least, most, self.weights) for rows in blocks]
        counts = np.concatenate([(some >= 0).sum(1) for some in kept])
        table = np.full((self.n_users, max(1, counts.max(initial=1))), -1, dtype=np.int64)
        for rows, some in zip(blocks, kept, strict=True):
            table[rows, : some.shape[1]] = some
        self._kept = []
        order = np.argsort(counts, kind="stable")  # so that blocks are as wide as they need to be
        for block in blocks:
            rows = order[block]
            columns = table[rows, : max(1, counts[rows].max(initial=1))]
            self._kept.append(_Contending(rows, columns, self.offers.of(rows).at(columns)))


@dataclass(frozen=True)
class _Contending:
    """Candidates of some users that are worth a look."""

    rows: Counts  # which users
    columns: Counts  # (r, n') of their offers
    offers: Offers


def undominated(offers: Offers, least: Floats, most: Floats, weights: Floats) -> Counts:
    """(b, n') the columns of candidates that may be in a best list, best value first; -1: none.

    least, most: (C,) between which the charges of the classes are.
    A candidate is in no best list if as many others as a list has places have a higher value v, and
    also a higher w_L v - charge, w_L being the weight of the last place: at any place, each of them
    would do better. Others are looked for among the best by either only, so some more may stay.
    """
    length, values = len(weights), torch.from_numpy(offers.values)
    last, classes = float(weights[-1]), torch.from_numpy(offers.classes)
    at_worst = last * values - torch.from_numpy(most.astype(offers.values.dtype))[classes]
    at_best = last * values - torch.from_numpy(least.astype(offers.values.dtype))[classes]
    keep = values > NEVER
    for by, other, own in ((values, at_worst, at_best), (at_worst, values, values)):
        if DEEP[0] * length > values.shape[1]:
            break
        first = by.topk(min(DEEP[-1] * length, values.shape[1]), dim=1)
        for deep in DEEP:
            if (count := deep * length) > first.indices.shape[1]:
                break
            edge = first.values[:, count - 1, None]
            bar = other.gather(1, first.indices[:, :count]).topk(length, dim=1).values[:, -1:]
            keep &= ((values if by is values else at_best) >= edge) | (own >= bar)
    counts = keep.sum(1)
    columns = torch.full((len(keep), max(1, int(counts.max()))), -1)
    rows, at = keep.nonzero(as_tuple=True)
    columns[rows, (keep.cumsum(1) - 1)[rows, at]] = at
    kept = columns.numpy()
    order = np.argsort(-offers.at(kept).values, axis=1, kind="stable")
    return np.take_along_axis(kept, order, axis=1)


def _by_value(offers: Offers, charges: Floats, weights: Floats) -> tuple[Counts, Floats]:
    """Lists (b, L) in order of value, where a charge is the same at every place.

    best[k] is the highest merit of k of the candidates so far; the next one is not among them, or
    is the last of them, at place k.
    """
    charge = charges[:, 0][offers.classes].T  # (n, b)
    values = offers.values.T
    n, b = values.shape
    length = len(weights)
    best = np.full((length + 1, b), -np.inf)
    best[0] = 0.0
    taken = np.zeros((n, length, b), dtype=np.bool_)
    place = weights[:, None]
    for i in range(n):
        with_it = best[:-1] + (place * values[i] - charge[i])
        np.greater(with_it, best[1:], out=taken[i])
        np.maximum(best[1:], with_it, out=best[1:])
    left = best.argmax(0)
    merit = best[left, np.arange(b)]
    at = np.full((b, length), -1, dtype=np.int64)
    for i in range(n - 1, -1, -1):
        rows = (taken[i][left - 1, np.arange(b)] & (left > 0)).nonzero()[0]
        at[rows, left[rows] - 1] = i
        left[rows] -= 1
    return at, merit


def _by_place(offers: Offers, charges: Floats, weights: Floats) -> tuple[Counts, Floats]:
    """Lists (b, L) where a charge depends on the place: an assignment of items to places."""
    b, length = len(offers.values), len(weights)
    at = np.full((b, length), -1, dtype=np.int64)
    merit = np.zeros(b)
    for u in range(b):
        n = int((offers.values[u] > NEVER).sum())
        net = weights[:, None] * offers.values[u, :n] - charges[offers.classes[u, :n]].T
        some = _among_the_best(net)
        places, items, merit[u] = _assigned(net[:, some])
        if len(places) and places[-1] >= len(places):  # no gaps: as many places from the first on
            places, items, _ = _assigned(net[: len(places), some])
        at[u, : len(items)] = some[items[np.argsort(places)]]
    return at, merit


def _among_the_best(net: Floats) -> Counts:
    """The items that at some place are among the best (L, n): one of these is free for it."""
    length, n = net.shape
    if n <= 2 * length:
        return np.arange(n)
    bar = np.partition(net, n - length, axis=1)[:, n - length]
    return np.flatnonzero((net >= bar[:, None]).any(0))


def _assigned(net: Floats) -> tuple[Counts, Counts, float]:
    """Places and their items, of the highest sum of net merits (L, n); places may stay empty."""
    length, n = net.shape
    if n < length or net.min() < 0:
        net = np.hstack([net, np.zeros((length, length))])
    places, items = linear_sum_assignment(net, maximize=True)
    total = float(net[places, items].sum())
    filled = items < n
    return places[filled], items[filled], total
