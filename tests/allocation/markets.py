"""Small markets for tests of lists under one limit, and their best lists by a general solver."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.engine import Allocation, allocate
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.metrics.fairness import gini
from fairhorizon.vocabulary import Scope

ROUNDING = 1e-9
FILLED = 256.0  # more than all values of a market: showings come first
Lists = NDArray[np.int64]
Floats = NDArray[np.float64]


def discounts(length: int) -> Floats:
    return 1 / np.log2(np.arange(2, length + 2))


@dataclass(frozen=True)
class Market:
    """Users, their candidates (-1: none) and a group."""

    items: Lists
    values: NDArray[np.float32]
    group: NDArray[np.bool_]
    length: int

    @cached_property
    def candidates(self) -> Candidates:
        return Candidates.checked(self.items, self.values)

    def limits(
        self, rule: PlaceRule | float, discounts: Sequence[float] | None = None
    ) -> LimitMatrix:
        rule = rule if isinstance(rule, PlaceRule) else PlaceRule(rule)
        return LimitMatrix.from_rules(
            [GroupRule(rule, self.group)], self.length, discounts=discounts
        )

    def solve(
        self,
        rule: PlaceRule | float,
        *,
        weights: Sequence[float] | None = None,
        room: float = 0.0,
        gini_limit: float | None = None,
    ) -> Allocation:
        """weights: of the value at each place; None: the discounts of DCG."""
        limits = self.limits(rule, weights)
        return allocate(self.candidates, limits, np.array([room]), gini_limit=gini_limit)

    def values_by_item(self, user: int) -> dict[int, float]:
        pairs = zip(self.items[user].tolist(), self.values[user].tolist(), strict=True)
        return {item: value for item, value in pairs if item >= 0}

    def total(self, lists: Lists, weights: Floats | None = None) -> float:
        """The sum of w v."""
        weights = discounts(lists.shape[1]) if weights is None else weights
        known = [self.values_by_item(user) for user in range(len(lists))]
        return sum(
            float(weight) * known[user][item]
            for user, row in enumerate(lists.tolist())
            for weight, item in zip(weights, row, strict=True)
            if item >= 0
        )

    def merit(self, lists: Lists) -> float:
        """Orders lists: the most showings first, then value."""
        return self.total(lists) + FILLED * int((lists >= 0).sum())

    def showings(self, lists: Lists) -> tuple[int, int]:
        """All, and those of the group."""
        shown = lists[lists >= 0]
        return len(shown), int(self.group[shown].sum())

    def gini(self, lists: Lists) -> float:
        return gini(np.bincount(lists[lists >= 0], minlength=len(self.group)))

    def assert_sound(self, lists: Lists) -> None:
        """Different candidates of each user, gaps only at the end."""
        assert lists.shape == (len(self.items), self.length)
        shown = lists >= 0
        assert not (shown[:, 1:] & ~shown[:, :-1]).any()
        for user, row in enumerate(lists.tolist()):
            real = [item for item in row if item >= 0]
            assert len(set(real)) == len(real)
            assert set(real) <= set(self.values_by_item(user))

    def assert_keeps(self, rule: PlaceRule, lists: Lists) -> None:
        """Sound, and the rule kept; a floor as a limit on the others."""
        self.assert_sound(lists)
        length, shown = lists.shape[1], lists >= 0
        group = shown & (self.group[lists.clip(0)] != rule.is_floor)
        share = 1 - rule.share if rule.is_floor else rule.share
        first = length if rule.first is None else min(rule.first, length)
        if rule.scope == Scope.ALL:
            g = rule.place_weights(length)
            assert (group * g).sum() <= share * (shown * g).sum() + 1e-8
        else:
            for k in range(1, first + 1) if rule.scope == Scope.PREFIX else [first]:
                assert group[:, :k].sum(1).max(initial=0) <= np.ceil(share * k - ROUNDING)


def random_market(seed: int) -> Market:
    """3-8 users, lists of 2-5, 4-10 candidates; a third of them cannot be filled by the rest.

    Every fourth market has whole numbers as values, with many ties.
    """
    rng = np.random.default_rng(seed)
    users, length, columns = rng.integers(3, 9), int(rng.integers(2, 6)), int(rng.integers(4, 11))
    items = np.stack([rng.permutation(14)[:columns] for _ in range(users)])
    group = rng.random(14) < rng.choice([0.4, 0.6, 0.85])
    items[rng.random(items.shape) < 0.1] = -1
    values = rng.integers(0, 5, items.shape) if seed % 4 == 0 else rng.random(items.shape)
    values = values + 0.5 * group[items]
    return Market(items, values.astype(np.float32), group, length)


def random_rule(seed: int, scope: Scope) -> PlaceRule:
    rng = np.random.default_rng(1000 + seed)
    first = [None, None, 1, 2, 3][seed % 5]
    weights: PlaceWeights | tuple[float, ...] = PlaceWeights.NONE
    if scope == Scope.ALL:
        own = tuple(rng.random(4).tolist())
        weights = [PlaceWeights.LOG, PlaceWeights.LOG, own, PlaceWeights.NONE][seed % 4]
    share = float(rng.choice([0.0, 0.1, 0.25, 0.4, 0.5, 1.0, *rng.random(6)]))
    return PlaceRule(share, rng.random() < 0.3, scope, weights, first)


def integer_optimum(market: Market, rule: PlaceRule, room: float = 0.0) -> float:
    """The highest `Market.merit`, by HiGHS over x[u, i, k], item i of user u at place k.

    The order within a list is free, but a place is filled only if the one before it is.
    """
    items, values = market.items, market.values.astype(np.float64)
    b, columns = items.shape
    length = market.length
    x = np.arange(b * columns * length).reshape(b, columns, length)
    group = (market.group[items] != rule.is_floor) & (items >= 0)
    share = 1 - rule.share if rule.is_floor else rule.share
    rows, low, high = [], [], []

    def add(at: np.ndarray, coefficients: np.ndarray | float, most: float, least: float) -> None:
        row = np.zeros(x.size)
        row[at.ravel()] = np.broadcast_to(coefficients, at.shape).ravel()
        rows.append(row)
        low.append(least)
        high.append(most)

    for u in range(b):
        for i in range(columns):
            add(x[u, i], 1.0, float(items[u, i] >= 0), 0)
        for k in range(length):
            add(x[u, :, k], 1.0, 1, 0)
            if k:
                step = np.stack([-np.ones(columns), np.ones(columns)], axis=1)
                add(x[u, :, k - 1 : k + 1], step, 0, -np.inf)
        first = length if rule.first is None else min(rule.first, length)
        counted = {Scope.ALL: [], Scope.LIST: [first], Scope.PREFIX: range(1, first + 1)}
        for k in counted[rule.scope]:
            add(x[u, group[u], :k], 1.0, np.ceil(share * k - ROUNDING), 0)
    if rule.scope == Scope.ALL:
        use = (group[:, :, None] - share) * rule.place_weights(length)
        add(x, use, room + ROUNDING, -np.inf)
    worth = np.where(items >= 0, values, 0.0)[:, :, None] * discounts(length) + FILLED
    best = milp(
        -worth.ravel(),
        constraints=LinearConstraint(sparse.csr_matrix(np.stack(rows)), low, high),
        integrality=1,
        bounds=(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    assert best.status == 0
    return float(-best.fun)
