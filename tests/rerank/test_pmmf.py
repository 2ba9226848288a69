"""P-MMF by hand: two steps of the dual variables, and the projection."""

import pytest
import torch
from scipy.optimize import minimize

from fairhorizon.rerank.online import GroupCandidates, UserBatch
from fairhorizon.rerank.pmmf import Pmmf


def batch_of(group, rest, length, target=0.4):
    """One user; the items of the group are 0, 1, ..., the others 5, 6, ..."""
    values = torch.tensor([[group], [rest]], dtype=torch.float64)
    items = torch.stack([torch.arange(len(group)), 5 + torch.arange(len(rest))])[:, None]
    return UserBatch(
        GroupCandidates(items, values.float(), values), torch.arange(1), length, target
    )


def test_two_steps_by_hand():
    """gamma = 0.4, 0.6. First both places are of the group, e = 1, 0:

    g = 0.5 (gamma - e) = -0.3, 0.3; nu = -0.1 g / gamma = 0.075, -0.05; mu = 0.1875, -0.0833.
    Then one of two, e = 0.5, 0.5: g = 0.5 (-0.1, 0.1) + 0.5 (-0.3, 0.3) = -0.2, 0.2;
    nu = 0.075 + 0.05, -0.05 - 0.0333; mu = 0.3125, -0.1389.
    """
    reranker = Pmmf(share=0.4, rate=0.1, momentum=0.5)
    ledger = reranker.new_ledger(1)
    assert reranker.lists(batch_of([0.9, 0.8], [0.7, 0.1], 2), ledger).tolist() == [[0, 1]]
    assert ledger["gradient"].tolist() == pytest.approx([-0.3, 0.3])
    assert ledger["mu"].tolist() == pytest.approx([0.1875, -0.05 / 0.6])
    assert reranker.price(0.4, ledger) == pytest.approx(0.1875 + 0.05 / 0.6)
    # less the price of 0.27 the group has 0.63 and 0.53
    assert reranker.lists(batch_of([0.9, 0.8], [0.55, 0.1], 2), ledger).tolist() == [[0, 5]]
    assert ledger["gradient"].tolist() == pytest.approx([-0.2, 0.2])
    assert ledger["mu"].tolist() == pytest.approx([0.3125, -0.25 / 3 / 0.6])


def test_a_list_is_chosen_by_price_and_shown_by_relevance():
    """At 0.27, of 0.63, 0.33 and 0.1 with 0.65 and 0.3 three are chosen: 0.65, 0.63 and 0.33."""
    ledger = {"mu": torch.tensor([0.17, -0.1]).double(), "gradient": torch.zeros(2).double()}
    batch = batch_of([0.9, 0.6, 0.37], [0.65, 0.3, 0.2], 3)
    assert Pmmf(share=0.4).lists(batch, ledger).tolist() == [[0, 5, 1]]


def test_the_rest_is_lifted_by_lambda_over_its_share_and_the_group_priced_without_bound():
    reranker = Pmmf(share=0.4, strength=0.03, rate=1.0, momentum=1.0)
    ledger = reranker.new_ledger(1)
    for step in range(1, 4):
        reranker.record(shown(group=True), ledger)
        assert ledger["mu"].tolist() == pytest.approx([step * 0.6 / 0.4**2, -0.03 / 0.6])
    for _ in range(9):
        reranker.record(shown(group=False), ledger)
    assert ledger["mu"].tolist() == [0, 0]  # at most: the group is never lifted


def shown(*, group):
    batch = batch_of([0.9], [0.5], 1)
    batch.take(torch.tensor([group]))
    return batch


@pytest.mark.parametrize(
    ("nu", "nearest"),
    [
        ((0.5, -0.2), (0.5, -0.2)),  # inside
        ((-3.0, 0.5), (-1.0, 0.5)),
        ((-3.0, -0.5), (-1.0, 0.0)),  # a corner
        ((-0.7, -0.9), (-0.4, -0.6)),
        ((-0.2, -4.0), (0.0, -1.0)),
    ],
)
def test_the_projection_by_hand_and_by_a_general_solver(nu, nearest):
    reranker = Pmmf(strength=1.0, form="equal")
    found = reranker.projected(torch.tensor(nu, dtype=torch.float64))
    assert found.tolist() == pytest.approx(nearest)
    solved = minimize(
        lambda x: ((x - torch.tensor(nu).numpy()) ** 2).sum(),
        x0=[0.0, 0.0],
        bounds=[(-1, None)] * 2,
        constraints={"type": "ineq", "fun": lambda x: x.sum() + 1},
    )
    assert found.tolist() == pytest.approx(solved.x.tolist(), abs=1e-5)


def test_ends_have_a_fixed_price():
    ledger = {"mu": torch.tensor([0.3, -0.2]).double()}
    assert Pmmf().price(0.5, ledger) == pytest.approx(0.5)
    assert Pmmf().price(0.0, ledger) == torch.inf
    assert Pmmf().price(1.0, ledger) == 0
    assert Pmmf(form="equal").price(1.0, ledger) == -torch.inf
