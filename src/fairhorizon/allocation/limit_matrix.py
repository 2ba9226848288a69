"""Limits on exposure as a matrix: what a showing of each class of items uses of each limit.

    sum over showings of  g[j, k] (1[item in group j] - share j)  <=  room[j]      for every limit j

k: the place of the showing;  g[j, k]: what place k counts under limit j.  A floor of a group is a
cap on everything else, so that there are only caps here. Items that are in the same groups are a
class: they use the same of every limit. A place that stays empty counts nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fairhorizon.errors import ConfigError
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.metrics.accuracy import discount
from fairhorizon.vocabulary import Scope

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Up to this many cells (limits x lists x places), use is summed densely; beyond, by class counts.
DENSE_CELLS = 2**16


@dataclass(frozen=True)
class GroupRule:
    """A limit on the showings of a group of items."""

    rule: PlaceRule
    members: Flags  # (n_items,)
    name: str = ""  # how a message calls it

    @classmethod
    def from_limit(cls, one: ResolvedLimit) -> "GroupRule":
        return cls(PlaceRule.from_limit(one.limit), one.members, str(one))

    def __str__(self) -> str:
        return self.name or f"a group {'>=' if self.rule.is_floor else '<='}{self.rule.share:g}"


@dataclass(frozen=True, eq=False)
class LimitMatrix:
    """One limit or several on all showings, or one on every list, for lists of one length."""

    rules: tuple[GroupRule, ...]  # as they were given, floors as floors
    length: int
    of_item: Counts  # (n_items,) the class of each item; of one limit, 1 is the capped group
    members: Flags  # (m, C) whether a class counts under a cap
    shares: Floats  # (m,) of the caps
    weights: Floats  # (m, L) what a showing at each place counts
    discounts: Floats  # (L,) what the value of a showing at each place is multiplied by
    start: int = 0  # places that were filled before, which these come after

    @classmethod
    def from_rules(
        cls,
        rules: Sequence[GroupRule],
        length: int,
        *,
        start: int = 0,
        discounts: Sequence[float] | None = None,
    ) -> "LimitMatrix":
        """The limits on lists of `length` items, behind `start` places that were filled before.

        discounts: (length,) which never rise; None: those of DCG, 1 / log2(1 + k).
        A limit on every list, or prefix, is alone.
        """
        if length < 1:
            raise ConfigError(f"length = {length} must be at least 1")
        for one in rules:
            if len(rules) > 1 and one.rule.scope is not Scope.ALL:
                raise ConfigError(
                    f"{one.name or 'a rule'} is on every list: several limits together are on all"
                    " showings (leave out its scope)"
                )
        capped = np.stack([one.members ^ one.rule.is_floor for one in rules])  # (m, n_items)
        of_item, members = _classes(capped)
        return cls(
            rules=tuple(rules),
            length=length,
            of_item=of_item,
            members=members,
            shares=np.array([1 - r.rule.share if r.rule.is_floor else r.rule.share for r in rules]),
            weights=np.stack([one.rule.place_weights(start + length)[start:] for one in rules]),
            discounts=_default_discounts(length)
            if discounts is None
            else _checked(discounts, length),
            start=start,
        )

    def __len__(self) -> int:
        return len(self.shares)

    @property
    def n_classes(self) -> int:
        return int(self.members.shape[1])

    @cached_property
    def items_of_class(self) -> list[Counts]:
        """The items of each class, in order."""
        order = np.argsort(self.of_item, kind="stable")
        ends = np.cumsum(np.bincount(self.of_item, minlength=self.n_classes))
        return np.split(order, ends[:-1])

    @cached_property
    def n_caps(self) -> Counts:
        """(C,) under how many limits a class counts."""
        count: Counts = self.members.sum(0)
        return count

    @cached_property
    def excess(self) -> Floats:
        """(m, C) what a showing that counts 1 uses of each limit; negative where it earns room."""
        used: Floats = self.members - self.shares[:, None]
        return used

    @cached_property
    def members_of_class(self) -> NDArray[np.float32]:
        """(m, C) 1 where a class counts under a cap."""
        return self.members.astype(np.float32)

    @cached_property
    def groups_of_class(self) -> sparse.csr_array:
        """(C, m) the limited groups of each class, sparse as an item is in few of many."""
        return sparse.csr_array(self.members.T.astype(np.float64))

    @cached_property
    def counts_alike(self) -> bool:
        """Whether every place counts 1 under every limit: then lists are best in order of value."""
        return bool((self.weights == 1).all())

    @property
    def in_every_list(self) -> bool:
        """Whether it is one limit on every list or prefix."""
        return self.rules[0].rule.scope is not Scope.ALL

    @property
    def is_one_plain(self) -> bool:
        """Whether it is one limit on all showings, which all count alike."""
        return len(self) == 1 and not self.in_every_list and self.counts_alike

    @cached_property
    def most_in_list(self) -> Counts:
        """(L,) under a limit on every list: how many of the group it may have up to each place."""
        rule = self.rules[0].rule
        cap = rule.mirrored() if rule.is_floor else rule
        return cap.most(self.start + self.length)[self.start + 1 :]

    def used_before(self, prefix: Counts) -> tuple[Floats, Counts]:
        """What lists that begin with these items (b, start), -1 for none, have used of each limit
        (m,); and how many of the group of the first limit each of them has (b,)."""
        filled = prefix >= 0
        in_groups = self.members[:, self.of_item[prefix.clip(0)]] & filled  # (m, b, start)
        weights = np.stack(
            [one.rule.place_weights(self.start + self.length)[: self.start] for one in self.rules]
        )
        beyond = (in_groups - self.shares[:, None, None] * filled).sum(1)
        return (beyond * weights).sum(1), in_groups[0].sum(1)

    @cached_property
    def full_list(self) -> Floats:
        """(m,) what all places of a list count."""
        total: Floats = self.weights.sum(1)
        return total

    def of_classes(self) -> "LimitMatrix":
        """The same, of items that are called by their classes."""
        return replace(self, of_item=np.arange(self.n_classes))

    def caps_of_one(self, room: Floats) -> Callable[[int], list[Floats]]:
        """From the length of a single list to caps (m,) on what the groups count in it."""
        return lambda size: [room + self.shares * self.weights[:, :size].sum(1)]

    def charges(self, prices: Floats) -> Floats:
        """(C, L) what the prices (m,) take off the value of a class at each place."""
        if self.counts_alike:
            return np.repeat((prices @ self.excess)[:, None], self.length, axis=1)
        return (self.excess * prices[:, None]).T @ self.weights

    @cached_property
    def _charged(self) -> Floats:
        """(m, C) 1 in a group; of a group with more than half of the items, -1 outside of it.

        Both charge classes alike, but for the same amount of all. The range of a charge counts
        against what is charged, so that is the smaller part.
        """
        items = np.bincount(self.of_item, minlength=self.n_classes)
        large = self.members @ items > items.sum() / 2
        charged: Floats = self.members - large[:, None].astype(np.float64)
        return charged

    def charge_range(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """(C,) the lowest and highest charge at any place, for prices between low and high (m,).

        Less what all classes are charged alike.
        """
        weights = self.weights[:, :1] if self.counts_alike else self.weights
        ends = [(self._charged * prices[:, None]).T for prices in (low, high)]  # (C, m)
        least, most = np.minimum(*ends) @ weights, np.maximum(*ends) @ weights
        return least.min(1, initial=np.inf), most.max(1, initial=-np.inf)

    def use(self, classes: Counts) -> Floats:
        """(b, m) what lists of classes (b, L), -1 behind their end, use of each limit."""
        if classes.size * len(self) <= DENSE_CELLS:
            padded = np.pad(self.excess, ((0, 0), (0, 1)))  # class -1: an empty place
            used: Floats = (padded[:, classes] * self.weights[:, None]).sum(2).T
            return used
        filled = np.pad(self.weights.cumsum(1), ((0, 0), (1, 0)))[:, (classes >= 0).sum(1)].T
        inside = np.zeros((len(classes), len(self)))
        for places, weights in self.alike_places:
            some = classes[:, places]
            rows = np.concatenate([[0], np.cumsum((some >= 0).sum(1))])
            kinds = some[some >= 0]
            counts = sparse.csr_array(
                (np.ones(len(kinds)), kinds, rows), shape=(len(classes), self.n_classes)
            )
            inside += (counts @ self.groups_of_class).toarray() * weights
        in_total: Floats = inside - self.shares * filled
        return in_total

    @cached_property
    def alike_places(self) -> list[tuple[Counts, Floats]]:
        """Places that count the same under every limit, and what they count (m,)."""
        kinds, of_place = np.unique(self.weights, axis=1, return_inverse=True)
        of_place = of_place.ravel()
        return [((of_place == kind).nonzero()[0], kinds[:, kind]) for kind in range(kinds.shape[1])]


def _classes(capped: Flags) -> tuple[Counts, Flags]:
    """(n_items,) the class of each item and (m, C) the groups of each class, from the groups of
    all items (m, n_items)."""
    if len(capped) == 1:
        return capped[0].astype(np.int64), np.array([[False, True]])
    # Columns as single values, because these sort much faster than columns of flags.
    packed = np.ascontiguousarray(np.packbits(capped, axis=0).T)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, examples, of_item = np.unique(keys, return_index=True, return_inverse=True)
    return of_item.ravel().astype(np.int64), capped[:, examples]


@lru_cache(maxsize=64)
def _default_discounts(length: int) -> Floats:
    weights: Floats = discount(np.arange(1, length + 1))
    weights.setflags(write=False)
    return weights


def _checked(discounts: Sequence[float], length: int) -> Floats:
    given = np.asarray(discounts, dtype=np.float64)
    if given.shape != (length,) or not np.isfinite(given).all():
        raise ConfigError(f"weights must be {length} finite numbers, one for each place")
    if (given < 0).any() or (np.diff(given) > 0).any():
        raise ConfigError(
            "weights must not rise or be negative (lists show the best value first, so the first"
            " place is the most seen)"
        )
    return given
