"""Rounds of CPO are run where weights that differ between states add something, and only there."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.networks import Actor, HistoryEncoder
from fairhorizon.fcpo.serving import ActorProbabilities, exceeds_chance, gain_of_states
from fairhorizon.histories import UserItems
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.rankers.candidates import ScoredCandidates
from fairhorizon.recommenders.lists.features import InitialCandidates
from fairhorizon.recommenders.lists.item_lists import ItemLists
from fairhorizon.recommenders.progress import Listener
from fairhorizon.simulation.feedback import Scenario

USERS, ITEMS, TAKEN = 300, 40, 4
QUICK = {"warm_start": ("ease", "popularity"), "rounds": 2, "evaluate_every": 1}


@dataclass(frozen=True)
class TwoScores:
    """Two scores and the group of an item, as a policy sees them."""

    n_features: int = 3
    priced: bool = True
    least_per_group: float = ITEMS

    def encoder_input(self, queues: Tensor) -> Tensor:
        return queues


def two_kinds(rule_by_user: bool) -> tuple[Actor, ItemLists, InitialCandidates, Scenario]:
    """Users take the best items of one of two rankers; the state tells whose, or nothing does."""
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(USERS, ITEMS, 2, generator=draw)
    kind = torch.arange(USERS) % 2
    chosen = scores[torch.arange(USERS), :, kind].topk(TAKEN, dim=1).indices
    told = kind if rule_by_user else torch.randint(2, (USERS,), generator=draw)
    encoder = HistoryEncoder((2.0 * told - 1)[:, None], torch.zeros(ITEMS, 3))
    torch.manual_seed(0)
    actor = Actor(encoder, TwoScores(), list_length=1, hidden=(8, 8))  # type: ignore[arg-type]
    actor.start_with_weights([1.0, 1.0, 0.0])
    items = torch.arange(ITEMS).expand(USERS, -1)
    candidate_set = ScoredCandidates(
        items, torch.cat([scores, torch.zeros(USERS, ITEMS, 1)], dim=2)
    )
    queues = torch.full((USERS, 5), ITEMS)
    taken = UserItems(torch.arange(USERS + 1) * TAKEN, chosen.flatten(), ITEMS)
    group = torch.arange(ITEMS) < ITEMS // 5
    histories = torch.full((USERS,), 20)
    lists = ItemLists(ActorProbabilities(actor), group, histories, PlaceRule(1.0), None)
    return (
        actor,
        lists,
        InitialCandidates(torch.arange(USERS), candidate_set),
        Scenario(queues, taken, None),
    )


def test_states_that_tell_which_ranker_is_right_are_worth_rounds() -> None:
    """With the right ranker alone all 4 items of a user are on top, and so NDCG@4 is 1."""
    gain = gain_of_states(*two_kinds(rule_by_user=True), length=TAKEN, seed=0)
    assert gain.shape == (USERS,)
    assert exceeds_chance(gain)
    assert gain.mean() > 0.25


def test_states_that_tell_nothing_are_not() -> None:
    gain = gain_of_states(*two_kinds(rule_by_user=False), length=TAKEN, seed=0)
    assert not exceeds_chance(gain)
    assert gain.mean() == pytest.approx(0, abs=0.03)


def test_the_actor_is_left_as_it_was() -> None:
    actor, *others = two_kinds(rule_by_user=True)
    before = [parameter.clone() for parameter in actor.parameters()]
    gain_of_states(actor, *others, length=TAKEN, seed=0)
    assert all(map(torch.equal, before, actor.parameters()))


def test_chance_is_one_standard_error() -> None:
    """Of 4 users with a deviation of 1, the standard error is 1/2."""
    spread = np.array([1.0, -1.0, 1.0, -1.0])
    assert exceeds_chance(spread + 0.51)
    assert not exceeds_chance(spread + 0.49)


class Said(Listener):
    def __init__(self) -> None:
        self.stages: list[str] = []

    def stage(self, text: str, metric: str = "NDCG") -> None:  # noqa: ARG002
        self.stages.append(text)


@pytest.fixture(scope="module")
def large() -> Split:
    return split(synthetic(260, 60, 20, seed=1).interactions)


def test_where_nothing_is_found_the_weights_serve_and_the_fit_says_so(large: Split) -> None:
    said = Said()
    model = Fcpo(FcpoConfig.preset("fast", **QUICK), seed=0).fit(large, listener=said)
    (why,) = (text for text in said.stages if text.startswith("no rounds of CPO"))
    assert "standard error" in why
    assert model.finished_
    assert model.history_ == []
    assert (
        "lists are made by the weighted rankers, as training found nothing to add"
        in model.summary()
    )
    forced = Fcpo(FcpoConfig.preset("fast", **QUICK, always_train=True), seed=0).fit(large)
    assert [report.round for report in forced.history_] == [1, 2]
    assert forced.policy_.settled  # the same weights serve after all
    weights = [one.policy_.actor.head.bias for one in (model, forced)]
    assert torch.equal(*weights)


def test_few_users_are_no_test(market: Split) -> None:
    said = Said()
    model = Fcpo(FcpoConfig.preset("fast", **QUICK), seed=0).fit(market, listener=said)
    assert model.history_ == []
    assert any("60 users are too few" in text for text in said.stages)


def test_the_paper_always_trains() -> None:
    assert FcpoConfig.preset("paper").always_train
    assert not FcpoConfig.preset("fast").always_train
