"""The value of showing an item, by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairhorizon.recommenders.lists.probabilities import ideal, item_values

SECOND = 1 / math.log2(3)


def test_for_who_likes_one_item_worth_is_its_chance():
    probabilities = torch.tensor([[0.5, 0.25, 0.25, 0.0]])
    torch.testing.assert_close(item_values(probabilities, torch.tensor([1.0]), 20), probabilities)


def test_two_likes_are_two_chances_for_a_larger_ideal():
    found = item_values(torch.tensor([[0.5, 0.1]]), torch.tensor([2.0]), 20)
    by_hand = torch.tensor([[0.75, 0.19]]) / (1 + SECOND)
    torch.testing.assert_close(found, by_hand)


def test_a_certain_item_stays_finite():
    found = item_values(torch.tensor([[1.0, 0.0]]), torch.tensor([300.0]), 2)
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0]]) / (1 + SECOND))


def test_the_ideal_by_hand():
    likes = torch.tensor([0.0, 1.0, 1.5, 2.0, 3.0, 3.25, 99.0])
    third = 0.5  # 1 / log2(4)
    by_hand = [0, 1, 1 + SECOND / 2, 1 + SECOND, *[1 + SECOND + third] * 3]
    torch.testing.assert_close(ideal(likes, 3), torch.tensor(by_hand))
    assert ideal(torch.tensor([5.0]), 1).tolist() == [1.0]


@given(
    st.lists(st.floats(0, 1, width=32), min_size=2, max_size=6),
    st.floats(1, 200, width=32),
    st.integers(1, 30),
)
def test_a_likelier_item_is_worth_more_and_nothing_more_than_the_first_place(
    probabilities: list[float], likes: float, length: int
):
    ordered = torch.tensor([sorted(probabilities)])
    found = item_values(ordered, torch.tensor([likes]), length)
    assert (found.diff(dim=1) >= 0).all()
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6
    assert found.isfinite().all()


def test_a_hit_counts_more_for_who_takes_little():
    """Of items that are liked almost for sure, so that only the ideal list differs."""
    probabilities = torch.tensor([[0.9]]).repeat(3, 1)
    found = item_values(probabilities, torch.tensor([1.0, 2.0, 20.0]), 20).squeeze(1).tolist()
    assert found == sorted(found, reverse=True)
    assert found[1] == pytest.approx(0.99 / (1 + SECOND))
