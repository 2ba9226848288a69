"""What several limits ask of lists, in terms of classes: items that are in the same groups.

    sum over showings of  a[j, c, k]  <=  room[j]        for every limit j

c: class of the shown item;  k: its place;  a = g[j, k] (1[c in group j] - share j), the other way
round for a floor;  g: what a showing at place k counts under limit j.  A place that stays empty
counts nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fairhorizon.errors import ConfigError
from fairhorizon.exposure.place_rule import PlaceRule
from fairhorizon.vocabulary import Scope

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

SMALL = 2**16  # cells that are summed as they are; of more, those of a class are counted first


@dataclass(frozen=True)
class GroupRule:
    """A rule on the showings of a group of items."""

    rule: PlaceRule
    members: Flags  # (n_items,)
    name: str = ""  # how a message calls it

    def __post_init__(self) -> None:
        if self.rule.scope is not Scope.ALL:
            raise ConfigError(
                f"{self.name or 'a rule'} is on every list: several limits together are on all"
                " showings (leave out its scope)"
            )

    def __str__(self) -> str:
        return self.name or f"a group {'>=' if self.rule.is_floor else '<='}{self.rule.share:g}"


@dataclass(frozen=True)
class Terms:
    """Several rules on lists of one length."""

    rules: tuple[GroupRule, ...]
    length: int
    of_item: Counts  # (n_items,) class of each item
    members: Flags  # (m, C) whether a class is in the group of a rule
    weights: Floats  # (m, L) what a showing at each place counts under a rule

    @classmethod
    def of(cls, rules: Sequence[GroupRule], length: int) -> "Terms":
        table = np.stack([rule.members for rule in rules])  # (m, n_items)
        patterns, of_item = np.unique(table, axis=1, return_inverse=True)
        weights = np.stack([one.rule.place_weights(length) for one in rules])
        return cls(tuple(rules), length, of_item.ravel().astype(np.int64), patterns, weights)

    @property
    def n_classes(self) -> int:
        return int(self.members.shape[1])

    @cached_property
    def items_of_class(self) -> list[Counts]:
        """The items of each class, in order."""
        return [np.flatnonzero(self.of_item == kind) for kind in range(self.n_classes)]

    @cached_property
    def shares(self) -> Floats:
        return np.array([one.rule.share for one in self.rules])

    @cached_property
    def excess(self) -> Floats:
        """(m, C) what a showing that counts 1 uses up; negative where it earns."""
        sign = np.where([one.rule.is_floor for one in self.rules], -1.0, 1.0)
        used: Floats = sign[:, None] * (self.members - self.shares[:, None])
        return used

    @cached_property
    def alike(self) -> bool:
        """Whether every rule counts all places alike; then lists are best in order of value."""
        return bool((self.weights == 1).all())

    def charges(self, prices: Floats) -> Floats:
        """(C, L) what the prices of the rules take off the value of a class at each place."""
        return (self.excess * prices[:, None]).T @ self.weights

    def charge_range(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """(C,) the lowest and the highest charge at any place, for prices from low to high (m,).

        Less what all classes are charged alike.
        """
        sign = np.where([one.rule.is_floor for one in self.rules], -1.0, 1.0)
        ends = [((sign * price)[:, None] * self.members).T for price in (low, high)]  # (C, m)
        least, most = np.minimum(*ends) @ self.weights, np.maximum(*ends) @ self.weights
        return least.min(1, initial=np.inf), most.max(1, initial=-np.inf)

    def use(self, classes: Counts, *, many: bool = False) -> Floats:
        """(b, m) what lists of classes (b, L), -1 behind their end, use of each rule.

        many: these are some of many lists; rounded as all of them would be.
        """
        if not len(classes) or (not many and classes.size * len(self.rules) <= SMALL):
            used: Floats = (self._excess_or_none[:, classes] * self.weights[:, None]).sum(2).T
            return used
        sign = np.where([one.rule.is_floor for one in self.rules], -1.0, 1.0)
        sizes = (classes >= 0).sum(1)
        filled = np.pad(self.weights.cumsum(1), ((0, 0), (1, 0)))[:, sizes].T  # (b, m)
        inside = np.zeros((len(classes), len(self.rules)))
        table = sparse.csr_array(self.members.T.astype(np.float64))  # (C, m)
        for places, weights in self.alike_places:
            some = classes[:, places]
            rows = np.concatenate([[0], np.cumsum((some >= 0).sum(1))])
            kinds = some[some >= 0]
            counts = sparse.csr_array(
                (np.ones(len(kinds)), kinds, rows), shape=(len(classes), self.n_classes)
            )
            inside += (counts @ table).toarray() * weights
        of_many: Floats = sign * (inside - self.shares * filled)
        return of_many

    @cached_property
    def _excess_or_none(self) -> Floats:
        """(m, C + 1): the last for an empty place, which is class -1."""
        return np.pad(self.excess, ((0, 0), (0, 1)))

    @cached_property
    def alike_places(self) -> list[tuple[Counts, Floats]]:
        """Places that count the same under every rule, and what they count (m,)."""
        kinds, of_place = np.unique(self.weights, axis=1, return_inverse=True)
        of_place = of_place.ravel()
        return [((of_place == kind).nonzero()[0], kinds[:, kind]) for kind in range(kinds.shape[1])]
