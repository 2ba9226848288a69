"""Limits that cannot be kept together, worked by hand."""

import numpy as np
import pytest

from fairhorizon.allocation.conflicts import (
    LimitsConflictError,
    Supply,
    check_before_fit,
    check_together,
    conflicts,
)
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.limits.language import Limit
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.limits.resolved import ResolvedLimit

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


def limits_on(*texts: str) -> list[ResolvedLimit]:
    """Limits on 30 items of the groups A, B, TWO and one without items."""
    groups = {"a": A, "b": B, "two": TWO, "none": ITEMS < 0}
    parsed = map(Limit.parse, texts)
    return [ResolvedLimit(one, groups[one.group.values[0]]) for one in parsed]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["g=a>=0.7", "g=b>=0.6"], r"take at most 0.4 in g=a>=0.7, or at most 0.3 in g=b>=0.6"),
        (["g=a<=0.4", "g=a>=0.6", "g=b<=0.9"], r"^g=a<=0.4 and g=a>=0.6 cannot be kept together"),
        (["g=none>=0.05"], r"g=none>=0.05 cannot be kept: no item is in this group"),
        (["g=a>=0.7;weights=log", "g=b>=0.6;weights=log", "g=a>=0.1"], r"take at most 0.4 in"),
    ],
)
def test_what_lists_of_no_length_can_keep_is_refused_before_a_fit(texts, message):
    with pytest.raises(LimitsConflictError, match=message):
        check_before_fit(limits_on(*texts))


@pytest.mark.parametrize(
    "texts",
    [
        ["g=a>=0.4", "g=b>=0.6"],  # both are kept by lists of five
        ["g=two>=0.9"],  # kept by lists of two
        ["g=a>=0.7@1", "g=a<=0.1"],  # kept by lists of ten: first places are one in ten
        ["g=a<=0.1;scope=list", "g=a>=0.6"],  # one item in every list of one
        [],
    ],
)
def test_what_lists_of_some_length_can_keep_is_not(texts):
    check_before_fit(limits_on(*texts))
