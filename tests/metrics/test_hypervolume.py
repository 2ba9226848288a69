import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhorizon.metrics.hypervolume import dominated_area, pareto_front

POINTS = st.lists(st.tuples(st.integers(-3, 9), st.integers(-3, 9)), min_size=1, max_size=7)


def union_by_inclusion_and_exclusion(points, reference):
    """A rectangle that many share is the one up to their smaller coordinates."""
    sizes = [np.maximum(np.subtract(point, reference), 0) for point in points]
    return sum(
        (-1) ** (count + 1) * math.prod(np.min(chosen, axis=0))
        for count in range(1, len(sizes) + 1)
        for chosen in combinations(sizes, count)
    )


def test_area_by_hand():
    assert dominated_area([(2, 3)]) == 6
    assert dominated_area([(2, 3), (4, 1), (1, 1)]) == 6 + 2
    assert dominated_area([(2, 3), (4, 1)], reference=(1, 0)) == 3 + 2
    assert dominated_area([(2, 3), (math.nan, 9)]) == 6
    assert dominated_area([(2, 0), (-1, 5)]) == 0


@given(POINTS, st.tuples(st.integers(-2, 2), st.integers(-2, 2)))
def test_area_is_inclusion_and_exclusion(points, reference):
    assert dominated_area(points, reference) == union_by_inclusion_and_exclusion(points, reference)


def test_area_is_what_chance_hits():
    rng = np.random.default_rng(0)
    points = rng.random((20, 2))
    throws = rng.random((100_000, 2))
    hit = (throws[:, None] <= points).all(axis=2).any(axis=1).mean()
    assert dominated_area(points) == pytest.approx(hit, abs=0.006)  # four standard errors


@given(POINTS)
def test_what_is_not_on_the_front_adds_no_area(points):
    front = pareto_front(points)
    assert front.any()
    assert dominated_area(np.array(points)[front]) == dominated_area(points)


@given(POINTS)
def test_the_front_is_what_nothing_beats(points):
    expected = [
        not any(x >= a and y >= b and (x, y) != (a, b) for x, y in points) for a, b in points
    ]
    assert pareto_front(points).tolist() == expected


def test_twins_are_both_on_the_front_and_a_gap_is_not():
    assert pareto_front([(1, 1), (1, 1), (0, 1), (math.nan, 5)]).tolist() == [
        True,
        True,
        *[False] * 2,
    ]


def test_points_have_two_coordinates():
    with pytest.raises(ValueError, match=r"points have shape \(2, 3\), expected \(n, 2\)"):
        dominated_area(np.ones((2, 3)))
