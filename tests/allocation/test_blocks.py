"""Lists over blocks of users keep the limits of all of them, at nearly the value of one block."""

import itertools

import numpy as np
import pytest
from markets import Market

from fairhorizon.allocation.engine import (
    Block,
    BlocksHere,
    allocate,
    allocate_over,
)
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights

CUTS = [[], [60], [40, 80], [10, 30, 50, 70, 90, 110], [0, 3], [1, 119]]


def market() -> Market:
    draw = np.random.default_rng(3)
    group = np.arange(40) < 15
    values = draw.random((120, 40)) + 0.6 * group
    return Market(np.tile(np.arange(40), (120, 1)), values, group, 5)


def parts(own: Market, cuts: list[int]) -> list[slice]:
    return [slice(*both) for both in itertools.pairwise([0, *cuts, len(own.items)])]


@pytest.mark.slow
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("weights", [PlaceWeights.NONE, PlaceWeights.LOG])
def test_one_limit(cuts, weights):
    own, rule = market(), PlaceRule(0.2, weights=weights)
    limits = own.limits(rule)
    blocks = [Block([own.candidates.take_users(p)], limits) for p in parts(own, cuts)]
    made = allocate_over(BlocksHere(blocks), limits)
    lists, one = np.concatenate([block.lists for block in blocks]), own.solve(rule)
    own.assert_keeps(rule, lists)
    assert (lists >= 0).all()
    if weights is PlaceWeights.NONE:
        assert own.total(lists) == pytest.approx(own.total(one.lists))
        assert made.prices[0] == pytest.approx(one.prices[0], abs=1e-6)
    assert own.total(lists) >= own.total(one.lists) - len(blocks) * own.values.max()


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("weights", [PlaceWeights.NONE, PlaceWeights.LOG])
def test_several_limits(cuts, weights):
    own = market()
    rules = [
        GroupRule(PlaceRule(0.2, weights=weights), own.group),
        GroupRule(PlaceRule(0.4, is_floor=True), np.arange(40) % 3 == 0),
    ]
    limits = LimitMatrix.from_rules(rules, 5)
    one = allocate(own.candidates, limits)
    blocks = [Block([own.candidates.take_users(p)], limits) for p in parts(own, cuts)]
    made = allocate_over(BlocksHere(blocks), limits)
    lists = np.concatenate([block.lists for block in blocks])
    assert made.kept
    for rule in rules:
        Market(own.items, own.values, rule.members, 5).assert_keeps(rule.rule, lists)
    assert (lists >= 0).all()
    assert made.value == pytest.approx(own.total(lists))
    assert made.value >= one.value - len(blocks) * own.values.max()
