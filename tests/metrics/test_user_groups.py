"""Accuracy by groups of users: by hand, and beside scipy's Welch interval."""

import math

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import ttest_ind

from fairhorizon.metrics.user_groups import GroupDifference, group_differences, groups_of_values


def test_by_hand() -> None:
    # a: 1, 0, 1 (mean 2/3, variance 1/3); b: 0, 1/2 (mean 1/4, variance 1/8)
    values, groups = [1, 0, 0, 0.5, 1], ["a", "a", "b", "b", "a"]
    a, b = group_differences(values, groups)
    assert (a.group, a.users, b.group, b.users) == ("a", 3, "b", 2)
    assert a.mean == b.others == pytest.approx(2 / 3)
    assert a.difference == -b.difference == pytest.approx(2 / 3 - 1 / 4)
    # v = 1/9, w = 1/16, so the standard error is 5/12; f = (25/144)^2 / (1/162 + 1/256) = 2.9904
    assert a.high - a.low == pytest.approx(2 * student.ppf(0.975, 2.9904) * 5 / 12, rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_as_scipy_has_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, groups = rng.random(60), rng.choice(["x", "y", "z"], 60)
    for found in group_differences(values, groups):
        own, others = values[groups == found.group], values[groups != found.group]
        theirs = ttest_ind(own, others, equal_var=False).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))


def test_users_without_a_value_or_a_group_are_left_out() -> None:
    values, groups = [0.2, math.nan, 0.4, 0.9, 0.6], ["a", "a", "b", "", "b"]
    a, b = group_differences(values, groups)
    assert (a.users, a.mean, a.others) == (1, 0.2, 0.5)
    assert math.isnan(a.low)  # of one user no spread is known
    assert (b.users, b.others) == (2, 0.2)


def test_without_any_spread_the_difference_is_known() -> None:
    (a, _) = group_differences([1, 1, 0, 0], ["a", "a", "b", "b"])
    assert a == GroupDifference("a", 2, 1.0, 0.0, 1.0, 1.0, 1.0)


def test_many_numbers_are_thirds_and_everything_else_is_as_it_is() -> None:
    ages = [str(age) for age in range(18, 36)]
    assert groups_of_values([*ages, ""]).tolist() == [
        *["18 to 23"] * 6,
        *["24 to 29"] * 6,
        *["30 to 35"] * 6,
        "",
    ]
    assert groups_of_values(["1", "2", "2"]).tolist() == ["1", "2", "2"]
    assert groups_of_values(["F", " M ", "F"]).tolist() == ["F", "M", "F"]
    names = [row.group for row in group_differences(range(6), ["10", "9", "x", "9", "10", "x"])]
    assert names == ["9", "10", "x"]
