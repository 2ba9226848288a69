"""Each user's best list at a price, if a place counts for the limit by where it is.

Within the group, and within the rest, a user's items are shown in the order of value, since weights
of places never rise. So a list is a merge of two sorted lists: at every place it takes the next of
the group or the next of the rest. With c of the group among the first k places,

    B[k, c] = max(w_k v(group, c) - p a_k + B[k + 1, c + 1],
                  w_k v(rest, k - c) - p e_k + B[k + 1, c])

where k and c count from 0, p is the price, and a_k and e_k say how much of the budget an item of
the group or of the rest uses at place k. A cap on c at some k forbids states. The recursion runs
for all users together, with a loop over places only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

USERS_AT_ONCE = 2048  # so that the states of one place stay in the cache


@dataclass(frozen=True)
class Merged:
    """One list of each user: which of its places hold items of the group."""

    of_group: Flags  # (L, b)
    sizes: Counts  # (b,)
    values: Floats  # (b,) sum of w v
    use: Floats  # (b,) of the budget

    @classmethod
    def join(cls, parts: "list[Merged]") -> "Merged":
        return cls(
            np.concatenate([part.of_group for part in parts], axis=1),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.use for part in parts]),
        )

    def put(self, rows: NDArray[np.int64], other: "Merged") -> None:
        """The lists of the other for these users, in place."""
        self.of_group[:, rows] = other.of_group
        self.sizes[rows] = other.sizes
        self.values[rows], self.use[rows] = other.values, other.use

    def at(self, rows: NDArray[np.int64]) -> "Merged":
        return Merged(
            self.of_group[:, rows].copy(), self.sizes[rows], self.values[rows], self.use[rows]
        )


@dataclass(frozen=True)
class Tails:
    """What the rest of a list is worth in every state, and how it goes on."""

    best: list[Floats]  # L + 1 of (k + 1, b): B[k]
    takes: list[Flags]  # L of (k + 1, b): the next item is of the group
    stops: list[Flags]  # of the same, where lists may end early: it ends here


@dataclass(frozen=True)
class Merges:
    """All lists that each user can be shown."""

    group: Floats  # (L, b) values, best first; -inf where there are no more
    rest: Floats  # (L, b)
    weights: Floats  # (L,) w, of value
    use: Floats  # (2, L) a and e
    caps: Counts  # (L + 1, b), or (L + 1, 1) for all: the most of the group in the first k places
    sizes: Counts  # (b,) how long the lists are, or may be
    may_end: bool = False  # lists may be shorter than their sizes
    bonus: float = 0.0  # added to the value of every showing

    @property
    def n_users(self) -> int:
        return len(self.sizes)

    def of(self, users: NDArray[np.int64] | slice) -> "Merges":
        """Those of some users."""
        return replace(
            self,
            group=self.group[:, users],
            rest=self.rest[:, users],
            sizes=self.sizes[users],
            caps=self.caps if self.caps.shape[1] == 1 else self.caps[:, users],
        )

    def blocks(self) -> Iterator["Merges"]:
        for start in range(0, max(1, self.n_users), USERS_AT_ONCE):
            yield self.of(slice(start, start + USERS_AT_ONCE))

    def total(self, shown: Merged) -> float:
        """What is maximised: the value of all lists with the bonus of all showings."""
        return float(shown.values.sum() + self.bonus * shown.sizes.sum())

    def best(self, price: float) -> Merged:
        """Each user's list of the highest value less price; of equal ones, that with less use."""
        return Merged.join([block._follow(block.tails(price)) for block in self.blocks()])

    def tails(self, price: float) -> Tails:
        places = len(self.weights)
        best = [np.zeros((places + 1, self.n_users))]
        takes, stops = [], []
        self._forbid(best[0], places)
        ends = set(self.sizes.tolist())
        for k in reversed(range(places)):
            after = best[-1]
            group, rest = (_weighed(self.weights[k], side[: k + 1]) for side in self._sides())
            charges = self.bonus - price * self.use[:, k]
            taken = group + charges[0] + after[1:]
            left = rest[::-1] + after[:-1]
            if charges[1]:
                left += charges[1]
            takes.append(taken > left)
            here = np.maximum(taken, left, out=taken)
            if self.may_end:
                stops.append(here < 0)
                np.maximum(here, 0.0, out=here)
            if k in ends:
                here[:, self.sizes == k] = 0.0
            self._forbid(here, k)
            best.append(here)
        return Tails(best[::-1], takes[::-1], stops[::-1])

    def _sides(self) -> tuple[Floats, Floats]:
        return self.group, self.rest

    def _forbid(self, states: Floats, k: int) -> None:
        caps = self.caps[k]
        if len(caps) == 1:
            states[caps[0] + 1 :] = -np.inf
        elif caps.min(initial=k) < k:
            states[np.arange(k + 1)[:, None] > caps] = -np.inf

    def _follow(self, tails: Tails) -> Merged:
        """The lists from the first place on; users without any list have an empty one."""
        places, b = len(self.weights), self.n_users
        users, c = np.arange(b), np.zeros(b, dtype=np.int64)
        of_group = np.zeros((places, b), dtype=np.bool_)
        values, use, sizes = np.zeros(b), np.zeros(b), np.zeros(b, dtype=np.int64)
        going = tails.best[0][0] > -np.inf
        for k in range(places):
            going &= self.sizes > k
            if self.may_end:
                going &= ~tails.stops[k][c, users]
            takes = tails.takes[k][c, users] & going
            shown = np.where(takes, self.group[c, users], self.rest[k - c, users])
            values += self.weights[k] * np.where(going, shown, 0.0)
            use += np.where(takes, self.use[0, k], np.where(going, self.use[1, k], 0.0))
            of_group[k] = takes
            c += takes
            sizes += going
        return Merged(of_group, sizes, values, use)


def _weighed(weight: float, values: Floats) -> Floats:
    if weight > 0:
        return weight * values
    return np.where(values > -np.inf, 0.0, -np.inf)
