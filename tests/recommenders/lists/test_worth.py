"""The worth of users multiplies their values: who gets what is scarce, never how much of it."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.networks import EmbeddedItems, StateEncoder
from fairhorizon.histories import UserItems
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.recommenders.lists.item_lists import ItemLists
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol

SHARE, LENGTH = 0.3, 5


@dataclass(frozen=True)
class GivenProbabilities:
    """A chance of every item for every user."""

    items: EmbeddedItems
    table: Tensor

    def predict(self, candidate_set: CandidateSet, users: Tensor, queues: Tensor) -> Tensor:  # noqa: ARG002
        return self.table[users[:, None], candidate_set.items.clamp(min=0)] * (
            candidate_set.items >= 0
        )


@pytest.mark.parametrize(
    ("worth", "shown", "price", "values"),
    [
        (None, [[0], [1]], 0.2, [[0.6], [0.3]]),
        ([1.0, 1.0], [[0], [1]], 0.2, [[0.6], [0.3]]),
        ([1.0, 2.0], [[1], [0]], 0.3, [[0.3], [1.0]]),
        ([0.5, 1.0], [[1], [0]], 0.15, [[0.15], [0.5]]),
    ],
)
def test_a_showing_goes_to_whom_it_is_worth_more(
    worth: list[float] | None, shown: list[list[int]], price: float, values: list[list[float]]
) -> None:
    """Item 0 may be shown to one of two users, who gain 0.3 and 0.2 by it before worth."""
    torch.manual_seed(0)
    view = EmbeddedItems(StateEncoder(torch.randn(2, 4), torch.randn(2, 4), 4, 1))
    probabilities = GivenProbabilities(view, torch.tensor([[0.6, 0.3], [0.5, 0.3]]))
    group = torch.tensor([True, False])
    lists = ItemLists(probabilities, group, torch.zeros(2).long(), PlaceRule(0.5), None)
    nothing = UserItems(torch.zeros(3).long(), torch.zeros(0).long(), 2)
    scenario = Scenario(
        torch.full((2, 3), 2),
        nothing,
        None,
        worth=None if worth is None else torch.tensor(worth),
    )
    made = lists.rank(scenario, 1)
    assert made.lists.tolist() == shown
    assert list(made.prices.values()) == [pytest.approx(price)]
    assert made.values is not None
    assert made.scores is not None
    assert made.values.tolist() == [pytest.approx(row) for row in values]
    assert made.scores.tolist() == [
        pytest.approx([probabilities.table[user, row[0]].item()]) for user, row in enumerate(shown)
    ]


@pytest.fixture(scope="module")
def scenario(market: Split, strong_model: Fcpo) -> Scenario:
    return evaluation_scenario(market, strong_model.queue_length, Protocol.STANDARD)


def lists_of(model: Fcpo, scenario: Scenario, worth: Tensor | None, way: str) -> Tensor:
    model = model.with_level(SHARE)
    weighed = replace(scenario, worth=worth)
    if way == "together":
        return torch.from_numpy(model.rank(weighed, length=LENGTH).lists)
    guard = model.request_guard(LENGTH)
    return torch.from_numpy(model.rank_one_by_one(weighed, LENGTH, guard).lists)


def test_the_same_worth_for_all_changes_no_list(strong_model: Fcpo, scenario: Scenario) -> None:
    """Powers of 2, so that nothing is rounded in another way; the guard begins with its price."""
    for way, factors in (("together", (0.5, 1.0, 4.0)), ("one by one", (1.0,))):
        plain = lists_of(strong_model, scenario, None, way)
        for factor in factors:
            worth = torch.full((scenario.n_users,), factor)
            assert torch.equal(lists_of(strong_model, scenario, worth, way), plain)


@pytest.mark.parametrize("way", ["together", "one by one"])
def test_the_limit_holds_exactly_and_who_is_worth_more_gets_more(
    way: str, strong_model: Fcpo, scenario: Scenario
) -> None:
    worth = torch.ones(scenario.n_users)
    worth[::2] = 4.0
    group = strong_model.sensitive_.cpu()
    inside = {}
    for name, own in (("plain", None), ("worth", worth)):
        lists = lists_of(strong_model, scenario, own, way)
        inside[name] = group[lists].sum(1)
        so_far = inside[name].cumsum(0)
        shown = LENGTH * torch.arange(1, len(lists) + 1)
        if way == "one by one":
            assert (so_far <= SHARE * shown + 1e-9).all()
        else:
            assert so_far[-1] == int(SHARE * shown[-1] + 1e-9)  # all of it is used
    assert inside["worth"][::2].sum() > 1.2 * inside["plain"][::2].sum()
    assert inside["worth"][1::2].sum() < inside["plain"][1::2].sum()
