"""Weights of a history by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import split
from fairhorizon.histories import items_to_look_at, longest_history, weighted_history

PAD = 4  # of a catalogue of four items


def test_the_weight_halves_with_every_half_life() -> None:
    queue = torch.tensor([[0, 1, 2], [PAD, PAD, 3], [PAD, PAD, PAD]])
    expected = [[1 / 4, 1 / 2, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert weighted_history(queue, 4, half_life=1).tolist() == expected
    slower = weighted_history(queue, 4, half_life=2)[0]
    torch.testing.assert_close(slower, torch.tensor([1 / 2, 2**-0.5, 1, 0]))


def test_without_a_half_life_all_count_the_same() -> None:
    queue = torch.tensor([[PAD, 1, 3, 2]])
    assert weighted_history(queue, 4, half_life=None).tolist() == [[0, 1, 1, 1]]


def test_an_item_that_is_there_twice_counts_twice() -> None:
    assert weighted_history(torch.tensor([[2, 1, 2]]), 4, half_life=1).tolist() == [
        [0, 1 / 2, 1 + 1 / 4, 0]
    ]


@settings(deadline=None, max_examples=30)  # a first call may be slow
@given(st.floats(0.1, 50))
def test_what_is_not_looked_at_weighs_less_than_a_millionth(half_life: float) -> None:
    n = items_to_look_at(half_life, longest=5000)
    weights = 2.0 ** (-torch.arange(5000, dtype=torch.float64) / half_life)
    assert weights[n:].sum() < 1e-6 * weights.sum()


@pytest.mark.parametrize(("half_life", "expected"), [(0.5, 10), (2, 40), (40, 700), (None, 700)])
def test_no_more_is_looked_at_than_there_is(half_life: float | None, expected: int) -> None:
    assert items_to_look_at(half_life, longest=700) == expected


def test_the_longest_history_is_that_before_the_test() -> None:
    """Of 10 items, 2 are for test; there is room for 100 more."""
    log = from_arrays([0] * 10 + [1] * 4, [*range(10), *range(4)])
    assert longest_history(split(log)) == 8 + 100
