"""The gain of a place for a group, against lists that are made with and without it."""

import numpy as np
from fairhorizon.allocation.exchange import exchange_gains
from hypothesis import given
from hypothesis import strategies as st

INF = np.inf


def best_first(values, length):
    falling = sorted(values, reverse=True)[:length]
    return falling + [-INF] * (length - len(falling))


def test_by_hand():
    """Lists of 3 out of 9, 5, 2 and of 8, 4, 1: the first gains 9 - 1, the second 5 - 4."""
    group, rest = np.array([[9.0, 5, 2]]), np.array([[8.0, 4, 1]])
    assert exchange_gains(group, rest, np.array([3])).tolist() == [[8, 1, -6]]
    assert exchange_gains(group, rest, np.array([2])).tolist() == [[5, -3, -INF]]


def test_what_fills_an_empty_place_gains_infinitely():
    group, rest = np.array([[9.0, 5, -INF]]), np.array([[8.0, -INF, -INF]])
    assert exchange_gains(group, rest, np.array([3])).tolist() == [[INF, INF, -INF]]
    assert exchange_gains(group, rest, np.array([2])).tolist() == [[INF, -3, -INF]]


VALUES = st.lists(st.integers(-9, 9).map(float), max_size=6)


@given(VALUES, VALUES, st.integers(1, 6))
def test_the_gain_is_the_difference_of_the_best_totals(members, others, length):
    """The total of the best list with c of the group, less that with c - 1."""
    size = min(length, len(members) + len(others))
    group, rest = best_first(members, length), best_first(others, length)
    (gains,) = exchange_gains(np.array([group]), np.array([rest]), np.array([size]))
    for c in range(1, length + 1):
        if c > min(size, len(members)):
            assert gains[c - 1] == -INF
        elif size - c + 1 > len(others):  # without it the list is shorter
            assert gains[c - 1] == INF
        else:
            more, less = (sum(group[:n]) + sum(rest[: size - n]) for n in (c, c - 1))
            assert gains[c - 1] == more - less
