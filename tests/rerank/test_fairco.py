"""FairCo by hand: the price is the group's lead in exposure per merit."""

import math

import pytest
import torch

from fairhorizon.rerank.fairco import FairCo
from fairhorizon.rerank.online import GroupCandidates, UserBatch

FIRST = 1 / (1 + 1 / math.log2(3))  # exposure of the first of two places, of the second 1 - FIRST


def batch_of(group, rest, target):
    """Users with two items of the group, 0 and 1, and two others, 5 and 6; relevances by user."""
    values = torch.tensor([group, rest], dtype=torch.float64)
    items = torch.tensor([[0, 1], [5, 6]])[:, None].expand(values.shape)
    return UserBatch(
        GroupCandidates(items, values.float(), values), torch.arange(len(group)), 2, target
    )


def test_two_batches_by_hand():
    """0 1 and 0 5 are shown: the group has 1 + FIRST lists of exposure, the rest 1 - FIRST."""
    reranker = FairCo(share=0.25, strength=0.1)
    ledger = reranker.new_ledger(2)
    batch = batch_of([[0.9, 0.8], [0.9, 0.2]], [[0.7, 0.1], [0.7, 0.6]], 0.25)
    assert reranker.price(0.25, ledger) == 0
    assert reranker.lists(batch, ledger).tolist() == [[0, 1], [0, 5]]
    assert ledger["exposure"].tolist() == pytest.approx([1 + FIRST, 1 - FIRST])
    lead = (1 + FIRST) / 0.25 - (1 - FIRST) / 0.75
    assert lead == pytest.approx(5.9368, abs=1e-4)
    assert reranker.price(0.25, ledger) == pytest.approx(0.1 * lead)
    # the group's 0.9 and 0.8 are 0.306 and 0.206 now, beside 0.7 and 0.1: in this order
    batch = batch_of([[0.9, 0.8]], [[0.7, 0.1]], 0.25)
    assert reranker.lists(batch, ledger).tolist() == [[5, 0]]
    assert ledger["exposure"].tolist() == pytest.approx([2, 1])


def test_only_equal_shares_lift_the_group():
    """Nothing of the group so far: at 0.25 it is 1 / 0.75 lists behind."""
    ledger = {"exposure": torch.tensor([0.0, 1.0], dtype=torch.float64)}
    assert FairCo(strength=0.3).price(0.25, ledger) == 0
    assert FairCo(strength=0.3, form="equal").price(0.25, ledger) == pytest.approx(-0.4)
    assert FairCo(strength=0).price(0.0, ledger) == 0
    assert FairCo().price(0.0, ledger) == math.inf
    assert FairCo().price(1.0, ledger) == 0
