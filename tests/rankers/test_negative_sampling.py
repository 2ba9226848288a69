"""Negatives: never what the user took, and every other item as likely as the next."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems
from fairhorizon.rankers import training
from fairhorizon.rankers.training import NegativeSampler


def user_items(rows: list[list[int]], n_items: int) -> UserItems:
    pointers = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    return UserItems(
        pointers, torch.tensor([item for row in rows for item in row], dtype=torch.long), n_items
    )


def sampler_of(rows: list[list[int]], n_items: int, mask_at_most: int) -> NegativeSampler:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "MASK_AT_MOST", mask_at_most)
        return NegativeSampler(user_items(rows, n_items))


N_ITEMS = 12
taken_sets = st.lists(
    st.lists(st.integers(0, N_ITEMS - 1), unique=True, max_size=N_ITEMS - 1), min_size=1, max_size=6
)


@settings(max_examples=100, deadline=None)
@given(taken_sets, st.integers(0, 2**32), st.sampled_from([0, 1000]))
def test_every_item_not_taken_is_drawn_and_no_other(
    rows: list[list[int]], seed: int, mask_at_most: int
) -> None:
    """In time order, so not sorted; in 400 draws of at most 12 items none is missed
    (12 (11/12)^400 < 1e-13)."""
    sampler = sampler_of(rows, N_ITEMS, mask_at_most)
    users = torch.arange(len(rows)).repeat(400)
    drawn = sampler.draw(users, torch.Generator().manual_seed(seed))
    for user, row in enumerate(rows):
        assert set(drawn[users == user].tolist()) == set(range(N_ITEMS)) - set(row)


@pytest.mark.parametrize("mask_at_most", [0, 1000])
def test_all_others_are_equally_likely(mask_at_most: int) -> None:
    sampler = sampler_of([[4, 0], [], [1, 3, 2]], 6, mask_at_most)
    users = torch.tensor([0, 2]).repeat_interleave(40_000)
    drawn = sampler.draw(users, torch.Generator().manual_seed(0)).view(2, -1)
    shares = torch.stack([torch.bincount(row, minlength=6) / 40_000 for row in drawn])
    third = torch.tensor([[0, 1, 1, 1, 0, 1], [1, 0, 0, 0, 1, 1]]) / torch.tensor([[4.0], [3.0]])
    assert torch.allclose(shares, third, atol=0.01)  # four standard deviations


def test_all_but_one_leaves_that_one() -> None:
    sampler = NegativeSampler(user_items([[5, 1, 0, 2, 4], [0]], 6))
    drawn = sampler.draw(torch.zeros(50, dtype=torch.long), torch.Generator().manual_seed(0))
    assert drawn.tolist() == [3] * 50


def test_who_took_everything_is_told_apart_and_refused() -> None:
    sampler = NegativeSampler(user_items([[2, 0, 1], [1]], 3))
    users = torch.tensor([1, 0, 1])
    assert sampler.can_draw(users).tolist() == [True, False, True]
    with pytest.raises(DataError, match="taken every item"):
        sampler.draw(users, torch.Generator().manual_seed(0))


def test_examples_are_of_users_who_have_others() -> None:
    taken = UserItems(torch.tensor([0, 3, 3, 4]), torch.tensor([2, 0, 1, 1]), 3)
    users, items = NegativeSampler(taken).examples(taken)
    assert (users.tolist(), items.tolist()) == ([2], [1])
    full = UserItems(torch.tensor([0, 3, 3]), torch.tensor([2, 0, 1]), 3)
    with pytest.raises(DataError, match="every user took all items or none"):
        NegativeSampler(full).examples(full)
