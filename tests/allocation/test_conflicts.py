"""Limits that cannot be kept together, worked by hand."""

import numpy as np
import pytest

from fairhorizon.allocation.conflicts import (
    LimitsConflictError,
    Supply,
    check_together,
    conflicts,
)
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights

ITEMS = np.arange(30)
A, B, TWO = ITEMS < 10, (ITEMS >= 10) & (ITEMS < 20), ITEMS < 2


def at_least(share, members, name, **how):
    return GroupRule(PlaceRule(share, is_floor=True, **how), members, name)


def at_most(share, members, name):
    return GroupRule(PlaceRule(share), members, name)


def found(*rules):
    limits = LimitMatrix.from_rules(rules, 10)
    capacity = np.minimum(np.bincount(limits.of_item), 10) * 50  # 50 lists of 10, all items open
    return conflicts(limits, Supply(np.full(10, 50), capacity))


def test_two_floors_that_add_up_to_more_than_all():
    (one,) = found(
        at_least(0.6, A, "a>=0.6"), at_least(0.7, B, "b>=0.7"), at_most(0.9, A, "a<=0.9")
    )
    assert [str(limit) for limit in one.limits] == ["a>=0.6", "b>=0.7"]
    assert one.shares == pytest.approx((0.3, 0.4))
    assert str(one) == (
        "a>=0.6 and b>=0.7 cannot be kept together (take at most 0.3 in a>=0.6, or at most 0.4 in"
        " b>=0.7)"
    )


def test_a_limit_below_a_floor():
    (one,) = found(
        at_least(0.3, B, "b>=0.3"), at_least(0.6, A, "a>=0.6"), at_most(0.5, A | B, "ab")
    )
    assert [str(limit) for limit in one.limits] == ["a>=0.6", "ab"]
    assert one.shares == pytest.approx((0.5, 0.6))


def test_a_floor_for_a_group_with_too_few_items():
    # two items, each once in a list of 10
    (one,) = found(at_least(0.3, TWO, "two>=0.3"))
    assert one.shares == pytest.approx((0.2,))
    assert str(one) == "two>=0.3 cannot be kept by any lists (take at most 0.2)"


def test_floors_by_place_and_alike():
    # All of a at the first places: 5 of 10 places have 2.948 of 4.544 in weight, which is 0.649.
    weights = 1 / np.log2(np.arange(2, 12))
    by_place = at_least(0.8, A, "a weighed", weights=PlaceWeights.LOG)
    (one,) = found(by_place, at_most(0.5, A, "a<=0.5"))
    assert one.shares[0] == pytest.approx(weights[:5].sum() / weights.sum())
    assert not found(at_least(0.64, A, "a", weights=PlaceWeights.LOG), at_most(0.5, A, "a<=0.5"))


def test_two_conflicts_are_both_named():
    two = found(
        at_least(0.3, TWO, "two>=0.3"), at_least(0.6, A, "a>=0.6"), at_least(0.6, B, "b>=0.6")
    )
    assert sorted(len(one.limits) for one in two) == [1, 2]


def test_limits_that_can_be_kept_are_let_through():
    limits = LimitMatrix.from_rules([at_least(0.5, A, "a>=0.5"), at_least(0.5, B, "b>=0.5")], 10)
    check_together(limits, Supply(np.full(10, 50), np.full(limits.n_classes, 500)))
    over = LimitMatrix.from_rules([at_least(0.5, A, "a>=0.5"), at_least(0.51, B, "b>=0.51")], 10)
    with pytest.raises(LimitsConflictError, match=r"a>=0.5 and b>=0.51 cannot be kept together"):
        check_together(over, Supply(np.full(10, 50), np.full(over.n_classes, 500)))
