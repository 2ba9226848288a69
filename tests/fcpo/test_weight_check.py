"""When the weights of the rankers are exchanged after the refit, and for which."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from fairhorizon.data.splits import Split
from fairhorizon.fcpo import serving
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.networks import NO_PRICE
from fairhorizon.fcpo.serving import VALIDATION_LENGTH, ActorProbabilities, better_weights
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.recommenders.interactive import listed_ndcg
from fairhorizon.recommenders.lists.features import initial_candidates, some_users
from fairhorizon.recommenders.lists.item_lists import ItemLists
from fairhorizon.simulation.feedback import Scenario, validation_scenario
from fairhorizon.vocabulary import Protocol


def weighed(model: Fcpo, weights: tuple[float, ...]) -> ItemLists:
    actor = copy.deepcopy(model.policy_.actor)
    actor.fix_weights([*weights, NO_PRICE])
    lists = model._lists()
    return replace(lists, probabilities=ActorProbabilities(actor))


def ndcg(lists: ItemLists, model: Fcpo, validation: Scenario) -> float:
    """Of the lists at the limit of the training, as the policy of `lists` makes them."""
    users = torch.arange(validation.n_users)
    candidate_set = initial_candidates(
        lists.probabilities.items, validation, users, lists.sensitive
    ).candidate_set
    rule = PlaceRule(model.config.limit_in_training)
    limited = replace(lists, rule=rule, spread=None)
    with torch.no_grad():
        shown = limited.from_candidates(candidate_set, users, validation.queue, VALIDATION_LENGTH)
    return listed_ndcg(shown, users, validation)


def states(model: Fcpo, market: Split) -> Scenario:
    return validation_scenario(market, model.queue_length, Protocol.STANDARD)


@pytest.fixture
def few_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The market has 60 users."""
    monkeypatch.setattr(serving, "FEWEST_USERS", 10)


def test_what_chance_makes_of_a_mean_by_hand() -> None:
    """A mean of 1/2 with a deviation of 1/2: over four users the error is 1/4, so 1/5 is chance."""
    gains = np.array([0.0, 1.0, 1.0, 0.0])
    assert serving.exceeds_chance(gains)
    assert serving.exceeds_chance(gains - 0.24)
    assert not serving.exceeds_chance(gains - 0.26)


@pytest.mark.usefixtures("few_will_do")
def test_a_policy_has_to_be_better_than_its_first_weights(
    strong_model: Fcpo, market: Split
) -> None:
    validation = states(strong_model, market)
    config = strong_model.config
    good, bad = (1.0, 0.5), (-1.0, -1.0)
    assert ndcg(weighed(strong_model, good), strong_model, validation) > ndcg(
        weighed(strong_model, bad), strong_model, validation
    )
    for policy, first, expected in (
        (good, bad, None),  # it is better by more than chance
        (bad, good, good),
        (good, good, good),  # no better: what was chosen on more items is preferred
        (bad, bad, bad),
    ):
        lists = weighed(strong_model, policy)
        assert better_weights(lists, validation, config, first, seed=0) == expected


def test_with_few_users_the_first_weights_serve(strong_model: Fcpo, market: Split) -> None:
    config = strong_model.config
    good, bad = (1.0, 0.5), (-1.0, -1.0)
    lists = weighed(strong_model, good)
    assert better_weights(lists, states(strong_model, market), config, bad, seed=0) == bad


def test_only_so_many_users_are_asked(strong_model: Fcpo, market: Split) -> None:
    validation = states(strong_model, market)
    drawn = some_users(validation, 7, torch.Generator().manual_seed(0))
    assert len(set(drawn.tolist())) == 7
    all_users = some_users(validation, 1000, torch.Generator())
    assert all_users.tolist() == list(range(validation.n_users))


def test_lists_longer_than_the_candidates_of_the_training_are_full(
    strong_model: Fcpo, market: Split
) -> None:
    """12 candidates of either group and two rankers are at most 24 outside the group of 16."""
    scenario = states(strong_model, market)
    taken = torch.from_numpy(market.train.user_counts())
    lists = torch.from_numpy(strong_model.with_level(0.1).recommend(scenario, length=34))
    roomy = taken <= 30  # at least 34 others are left
    assert roomy.sum() > 50
    assert (lists[roomy] >= 0).all()
