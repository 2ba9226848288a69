"""Limits that cannot all be kept: which of them are in each other's way, and by how much.

y[c, k]: showings of class c at place k in all lists together. Lists that keep the limits exist only
if there is a y with

    sum_c y[c, k] = lists with a place k        sum_k y[c, k] <= showings that class c can have
    every limit, its share loosened by r_j >= 0 where it has to give

A set of limits that has no such y, while every smaller one has, is a conflict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, GroupRule, LimitMatrix
from fairhorizon.errors import ConfigError
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.vocabulary import Scope

NOTHING = 1e-7  # of a share


@dataclass(frozen=True)
class Conflict:
    """Limits that cannot be kept together, and the share at which each alone would let them."""

    limits: tuple[GroupRule, ...]
    shares: tuple[float, ...]

    def __str__(self) -> str:
        ways = [
            f"at {'most' if limit.rule.is_floor else 'least'} {_shown(limit, share)}"
            for limit, share in zip(self.limits, self.shares, strict=True)
        ]
        names = " and ".join(", ".join(map(str, self.limits)).rsplit(", ", 1))
        if len(self.limits) == 1 and not self.limits[0].members.any():
            return f"{names} cannot be kept: no item is in this group (leave the limit out)"
        if len(self.limits) == 1:
            return f"{names} cannot be kept by any lists (take {ways[0]})"
        each = [f"{way} in {limit}" for way, limit in zip(ways, self.limits, strict=True)]
        return f"{names} cannot be kept together (take {', or '.join(each)})"


class LimitsConflictError(ConfigError):
    """Limits that no lists can keep."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__("; ".join(map(str, conflicts)))
        self.conflicts = tuple(conflicts)


@dataclass(frozen=True)
class Supply:
    """What could be shown at all."""

    places: Counts  # (L,) how many lists have a place k
    capacity: Counts  # (C,) at most so many showings of each class: an item once a list

    @classmethod
    def from_candidates(cls, candidates: Candidates, limits: LimitMatrix) -> "Supply":
        there = candidates.there
        kinds = np.broadcast_to(limits.of_item[candidates.items], there.shape)
        users = np.broadcast_to(np.arange(len(there))[:, None], there.shape)
        found = np.zeros((len(there), limits.n_classes), dtype=np.int64)
        np.add.at(found, (users[there], kinds[there]), 1)
        sizes = np.minimum(there.sum(1), limits.length)
        places = (sizes[:, None] > np.arange(limits.length)).sum(0)
        return cls(places, np.minimum(found, limits.length).sum(0))


def check_together(limits: LimitMatrix, supply: Supply) -> None:
    """Refuse limits that no lists can keep."""
    if found := conflicts(limits, supply):
        raise LimitsConflictError(found)


def check_before_fit(limits: Sequence[ResolvedLimit]) -> None:
    """Refuse limits that lists of no length can keep, before it is known who they are for.

    Limits that count places alike are possible together if they are in lists of one place. Those
    that count places otherwise, such as by weights, do not decide here: whether they get along
    depends on the length. Nor do limits on every list, which are rounded to whole items.
    """
    rules = [
        GroupRule.from_limit(one)
        for one in limits
        if not one.limit.is_gini and one.limit.scope is Scope.ALL
    ]
    found: list[Conflict] = []
    counted = {(one.rule.weights, one.rule.first) for one in rules}
    for weights, first in sorted(counted, key=str):
        alike = [
            replace(one, rule=PlaceRule(one.rule.share, one.rule.is_floor))
            for one in rules
            if (one.rule.weights, one.rule.first) == (weights, first)
        ]
        matrix = LimitMatrix.from_rules(alike, 1)
        items = np.bincount(matrix.of_item, minlength=matrix.n_classes)
        one_place = np.ones(1, dtype=np.int64)
        found += conflicts(matrix, Supply(one_place, np.minimum(items, 1)))
    if found:
        raise LimitsConflictError(found)


def conflicts(limits: LimitMatrix, supply: Supply) -> list[Conflict]:
    """Disjoint sets of limits that cannot be kept together; none if all can be."""
    program, found = _Program(limits, supply), []
    left = np.ones(len(limits.rules), dtype=np.bool_)
    while (given := program.given(left)) is not None and given.sum() > NOTHING:
        together = program.marginal(left)
        for number in together.nonzero()[0]:
            without = together.copy()
            without[number] = False
            if program.given(without).sum() > NOTHING:
                together = without
        numbers = together.nonzero()[0]
        shares = [program.share_alone(int(number), together) for number in numbers]
        found.append(Conflict(tuple(limits.rules[n] for n in numbers), tuple(shares)))
        left &= ~together
    return found


class _Program:
    """The linear program above, over classes and places that count alike."""

    def __init__(self, limits: LimitMatrix, supply: Supply) -> None:
        self.limits = limits
        alike = limits.alike_places
        lists = np.array([supply.places[places].sum() for places, _ in alike], dtype=np.float64)
        weights = np.stack([weights for _, weights in alike], axis=1)  # (m, Q)
        total = max(1.0, lists.sum())
        m, n_classes, kinds = len(limits.rules), limits.n_classes, len(alike)
        self.counted = np.maximum(weights @ lists, NOTHING) / total
        use = limits.excess[:, :, None] * weights[:, None, :]
        self.use = use.reshape(m, n_classes * kinds) / self.counted[:, None]  # in shares
        self.fill = sparse.csr_array(np.tile(np.eye(kinds), (1, n_classes)))
        self.filled = lists / total
        self.once = sparse.csr_array(np.repeat(np.eye(n_classes), kinds, axis=1))
        self.most = supply.capacity / total

    def _solve(self, kept: Flags, cost: Floats) -> tuple[Floats, Floats]:
        """(m,) what the kept limits give, at these costs, and the marginals of the limits."""
        m = int(kept.sum())
        n = self.use.shape[1]
        limits = sparse.hstack([sparse.csr_array(self.use[kept]), -sparse.eye_array(m)])
        once = sparse.hstack([self.once, sparse.csr_array((self.once.shape[0], m))])
        fill = sparse.hstack([self.fill, sparse.csr_array((self.fill.shape[0], m))])
        result = linprog(
            np.concatenate([np.zeros(n), cost[kept]]),
            A_ub=sparse.vstack([limits, once]),
            b_ub=np.concatenate([np.zeros(m), self.most]),
            A_eq=fill,
            b_eq=self.filled,
            method="highs-ds",
        )
        given, marginals = np.zeros(len(kept)), np.zeros(len(kept))
        if result.x is not None:
            given[kept], marginals[kept] = result.x[n:], result.ineqlin.marginals[:m]
        return given, marginals

    def given(self, kept: Flags) -> Floats:
        return self._solve(kept, np.ones(len(kept)))[0]

    def marginal(self, kept: Flags) -> Flags:
        """Limits that matter for how much has to be given: they hold a conflict."""
        matter: Flags = self._solve(kept, np.ones(len(kept)))[1] < -NOTHING
        return matter

    def share_alone(self, number: int, together: Flags) -> float:
        """The share at which this limit alone would let all of these be kept."""
        cost = np.full(len(together), 1e4)
        cost[number] = 1.0
        limit = self.limits.rules[number].rule
        given = float(self._solve(together, cost)[0][number])
        return limit.share + (-given if limit.is_floor else given)


def _shown(limit: GroupRule, share: float) -> str:
    """Rounded to the side on which it can be kept."""
    digits = 1e4
    rounded = (
        np.floor(share * digits + 1e-6) if limit.rule.is_floor else np.ceil(share * digits - 1e-6)
    )
    return f"{rounded / digits:g}"
