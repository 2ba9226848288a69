"""When a share of showings is kept, in spite of rounding."""

from fractions import Fraction

import pytest

from fairhorizon.metrics.shares import exceeds, rounded_up, whole_showings


@pytest.mark.parametrize("shown", [1, 5, 20, 25, 100, 997, 10**6])
def test_whole_showings_are_those_of_exact_fractions(shown):
    for percent in range(101):
        exact = Fraction(percent, 100) * shown
        assert whole_showings(percent / 100 * shown) == exact.numerator // exact.denominator


def test_rounded_up_is_that_of_exact_fractions():
    for percent in range(101):
        for places in (5, 7, 20, 25, 100):
            exact = Fraction(percent, 100) * places
            assert rounded_up(percent / 100 * places) == -(-exact.numerator // exact.denominator)


def test_a_budget_may_be_negative():
    assert [whole_showings(budget) for budget in (-0.5, -1.0, -1 - 1e-12)] == [-1, -1, -1]


def test_what_exceeds_a_limit():
    assert not exceeds(0.1 + 0.2, 0.3)
    assert not exceeds(0.3, 0.3)
    assert exceeds(0.3 + 1e-8, 0.3)
    assert exceeds(float("inf"), 1.0)
    assert not exceeds(float("nan"), 0.3)  # nothing was shown
