"""TFROM by hand: who has lost the most chooses first, within the fair exposure."""

import math

import pytest
import torch

from fairhorizon.rerank.online import GroupCandidates, UserBatch
from fairhorizon.rerank.tfrom import Tfrom

FIRST = 1 / (1 + 1 / math.log2(3))  # exposure of the first of two places, of the second 1 - FIRST


def batch_of(group, rest, target, users=None, length=2):
    """Users with items 0 and 1 of the group and the others 5 and 6; relevances by user."""
    values = torch.tensor([group, rest], dtype=torch.float64)
    items = torch.tensor([[0, 1], [5, 6]])[:, None].expand(values.shape)
    users = torch.arange(len(group)) if users is None else torch.tensor(users)
    return UserBatch(GroupCandidates(items, values.float(), values), users, length, target)


def test_the_offline_algorithm_by_hand():
    """A fair exposure of half of two lists: 1. Everyone wants the group at both places.

    First place: room for 1 / FIRST, that is one; nobody has lost anything, so the first user gets
    it and the second is left with 0.6 of 0.8. Second place: what is left is just one second place,
    and the second user chooses first.
    """
    reranker = Tfrom(share=0.5)
    ledger = reranker.new_ledger(2)
    batch = batch_of([[0.9, 0.8], [0.8, 0.7]], [[0.5, 0.4], [0.6, 0.2]], 0.5)
    assert reranker.next(batch, ledger).tolist() == [0, 5]
    assert (ledger["gained"] / ledger["ideal"]).tolist() == pytest.approx([1, 0.6 / 0.8])
    assert reranker.next(batch, ledger).tolist() == [5, 0]
    reranker.record(batch, ledger)
    assert ledger["exposure"].tolist() == pytest.approx([1, 1])
    assert ledger["fair"].tolist() == pytest.approx([1, 1])
    second = 1 - FIRST
    quality = [
        (FIRST * 0.9 + second * 0.5) / (FIRST * 0.9 + second * 0.8),
        (FIRST * 0.6 + second * 0.8) / (FIRST * 0.8 + second * 0.7),
    ]
    assert (ledger["gained"] / ledger["ideal"]).tolist() == pytest.approx(quality)


def test_the_online_algorithm_remembers_exposure_and_quality():
    """Lists of one. A fair share of 0.4 of three showings is one of them, of six two.

    The user who got it is the last to choose next time; of the others, who lost a half and three
    quarters, the one who lost more is first.
    """
    reranker = Tfrom(share=0.4)
    ledger = reranker.new_ledger(3)
    group, rest = [[0.8, 0.1]] * 3, [[0.4, 0.1], [0.4, 0.1], [0.2, 0.1]]
    lists = reranker.lists(batch_of(group, rest, 0.4, length=1), ledger)
    assert lists.tolist() == [[0], [5], [5]]
    assert ledger["exposure"].tolist() == [1, 2]
    assert ledger["fair"].tolist() == pytest.approx([1.2, 1.8])
    lists = reranker.lists(batch_of(group, rest, 0.4, length=1), ledger)
    assert lists.tolist() == [[5], [5], [0]]
    # 0.4 of eight is 3, so that one of two more users is shown the group: the user at a half
    lists = reranker.lists(batch_of(group[:2], rest[:2], 0.4, users=[0, 1], length=1), ledger)
    assert lists.tolist() == [[5], [0]]


@pytest.mark.parametrize(
    ("form", "target", "expected"),
    [
        ("at-most", 0.75, [5, 5, 5, 0]),  # the group has room for three that only one wants
        ("equal", 0.75, [5, 0, 0, 0]),  # the rest has room for one
        ("equal", 0.25, [5, 5, 5, 0]),
        ("equal", 0.5, [5, 5, 0, 0]),
    ],
)
def test_equal_shares_leave_the_rest_no_more_than_its_own(form, target, expected):
    reranker = Tfrom(form=form)
    group, rest = [[0.3, 0.1]] * 3 + [[0.9, 0.1]], [[0.5, 0.1]] * 4
    lists = reranker.lists(batch_of(group, rest, target, length=1), reranker.new_ledger(4))
    assert lists.flatten().tolist() == expected
