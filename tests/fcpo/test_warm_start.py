"""The warm start: features and candidates by hand, a model that survives its file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.networks import NO_PRICE, Actor, HistoryEncoder, start_from
from fairhorizon.fcpo.policies import rows_of
from fairhorizon.fcpo.warm_start import fit_warm_start
from fairhorizon.metrics.fairness import exposure_counts
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.ranking import standardised
from fairhorizon.recommenders.base import NOTHING_FITTED, Fitted, Prerequisite
from fairhorizon.recommenders.lists.features import EnsembleFeatures, EnsembleItems
from fairhorizon.recommenders.progress import SILENT
from fairhorizon.settings import SettingsError
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol


def plain(market: Split, *names: str, seed: int = 0, fitted: Fitted = NOTHING_FITTED) -> Ensemble:
    """Rankers with their default settings, fitted on the whole log."""
    config = FcpoConfig(warm_start=names, adapt=False, starts="anywhere")
    return fit_warm_start(market, config, seed, fitted, SILENT).learning


@pytest.fixture(scope="module")
def ensemble(market: Split) -> Ensemble:
    return plain(market, "ease", "popularity")


@pytest.fixture(scope="module")
def strong(market: Split, small: FcpoConfig) -> Fcpo:
    config = small.model_copy(
        update={
            "warm_start": ("ease", "popularity"),
            "rounds": 0,
            "alpha_prime": 0.3,
            "initial_std": 0.05,
        }
    )
    return Fcpo(config, seed=2).fit(market)


def test_standardised_by_hand():
    scores = torch.tensor([[1.0, 3.0, 5.0], [2.0, 2.0, 2.0]])
    third = (3 / 2) ** 0.5
    assert torch.allclose(standardised(scores), torch.tensor([[-third, 0, third], [0, 0, 0]]))


def test_a_score_is_the_weighted_sum_of_features_less_the_price_of_the_group(ensemble: Ensemble):
    users, n = torch.arange(4), len(ensemble.rankers[0].tensors()["item_weights"])
    queue = torch.randint(n, (4, ensemble.queue_length), generator=torch.Generator().manual_seed(1))
    sensitive = torch.arange(n) % 3 == 0
    features = EnsembleFeatures(ensemble, users, queue, sensitive)
    weights = torch.tensor([[1.0, 0.5, 2.0], [0.0, 1.0, 0.0], [2.0, 0.0, -1.0], [1.0, 1.0, 0.0]])
    z = [standardised(ranker.scores(users, queue)) for ranker in ensemble.rankers]
    by_hand = weights[:, :1] * z[0] + weights[:, 1:2] * z[1] - weights[:, 2:] * sensitive
    assert torch.allclose(features.scores(weights), by_hand, atol=1e-6)

    features.relabel(~sensitive)  # what enters the group is dearer at once
    moved = features.scores(weights) - by_hand
    price = weights[:, 2:]
    assert torch.allclose(moved, price * sensitive - price * ~sensitive, atol=1e-6)

    rows = torch.tensor([2])
    features.relabel(sensitive)
    features.refresh(rows, users[rows], queue[:1])
    again = EnsembleFeatures(ensemble, users[rows], queue[:1], sensitive).scores(weights[rows])
    assert torch.allclose(features.scores(weights)[rows], again, atol=1e-6)
    others = torch.tensor([0, 1, 3])
    assert torch.allclose(features.scores(weights)[others], by_hand[others], atol=1e-6)


def test_the_same_rankers_with_other_weights(ensemble: Ensemble, market: Split):
    assert max(ensemble.weights) == 1.0
    weighed = ensemble.weighed((0.5, 2.0))
    assert weighed.weights == (0.5, 2.0)
    assert weighed.rankers == ensemble.rankers
    again = weighed.refitted(market)  # other objects, the same numbers
    assert again.weights == (0.5, 2.0)
    assert again.rankers[0] is not ensemble.rankers[0]
    assert torch.equal(again.rankers[0].item_weights_, ensemble.rankers[0].item_weights_)


def test_rankers_are_fitted_under_the_seed_of_the_ensemble(market: Split):
    (ranker,) = plain(market, "mf", seed=3).rankers
    assert ranker.seed == 3
    assert torch.equal(ranker.user_vectors_, RANKERS["mf"](seed=3).fit(market).user_vectors_)


def actor_over(ensemble: Ensemble, market: Split, **changes: Any) -> Actor:
    items = EnsembleItems(ensemble, **{"history": 3, "candidates": 3, **changes})
    encoder = HistoryEncoder(torch.zeros(60, 1), torch.zeros(market.train.n_items, 3))
    torch.manual_seed(0)
    actor = Actor(encoder, items, list_length=2, hidden=(4, 4))
    start_from(actor, ensemble, initial_std=1e-6)
    return actor


def test_an_actor_begins_with_the_weights_of_the_ensemble_and_no_price(
    ensemble: Ensemble, market: Split
):
    actor = actor_over(ensemble.weighed((0.5, 2.0)), market)
    users, queues = torch.arange(5), torch.full((5, 3), market.train.n_items)
    with torch.no_grad():
        rows = rows_of(actor(users, queues), 2)
        expected = torch.tensor([0.5, 2.0, 0.0]).expand(5, 2, 3)
        torch.testing.assert_close(rows, expected, rtol=0, atol=1e-5)
        actor.start_with_weights((3.0, -1.0, NO_PRICE))
        rows = rows_of(actor(users, queues), 2)
        expected = torch.tensor([3.0, -1.0, 0.0]).expand(5, 2, 3)
        torch.testing.assert_close(rows, expected, rtol=0, atol=1e-5)


def test_without_its_price_an_actor_has_the_same_weights(ensemble: Ensemble, market: Split):
    actor = actor_over(ensemble, market)
    users, queues = torch.arange(5), torch.randint(80, (5, 3))
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.normal_()
        before = rows_of(actor(users, queues), 2)
        actor.without_price()
        after = rows_of(actor(users, queues), 2)
    assert before[..., 2].abs().min() > 0
    assert (after[..., 2] == 0).all()
    assert torch.equal(after[..., :2], before[..., :2])


@pytest.mark.parametrize("priced", [True, False])
def test_candidates_hold_what_some_ranker_puts_first_in_its_group(
    ensemble: Ensemble, market: Split, priced: bool
):
    actor = actor_over(ensemble, market, priced=priced)
    scenario = evaluation_scenario(market, ensemble.queue_length, Protocol.STANDARD)
    users = torch.tensor([7, 0, 31])
    state, _ = scenario.begin(users)
    sensitive = torch.arange(market.train.n_items) % 4 == 0
    candidate_set = actor.items.candidate_set(users, state.queue, state.blocked, sensitive)
    features = [standardised(ranker.scores(users, state.queue)) for ranker in ensemble.rankers]
    assert candidate_set.items.shape == (3, 12)  # two rankers, two groups, three of each
    for row in range(3):
        expected = set()
        for values in features:
            for group in (sensitive, ~sensitive):
                open_items = (group & ~state.blocked[row]).nonzero().squeeze(1).tolist()
                expected |= set(sorted(open_items, key=lambda i: -float(values[row, i]))[:3])
        items = candidate_set.items[row].tolist()
        assert sorted(item for item in items if item >= 0) == sorted(expected)
        for place, item in enumerate(items):
            if item >= 0:
                group = -float(sensitive[item]) if priced else 0.0
                numbers = [float(values[row, item]) for values in features]
                assert candidate_set.features[row, place].tolist() == [*numbers, group]


def test_the_encoder_looks_at_the_last_items_only(ensemble: Ensemble, market: Split):
    assert actor_over(ensemble, market).items.encoder_input(
        torch.arange(10).view(2, 5)
    ).tolist() == [
        [2, 3, 4],
        [7, 8, 9],
    ]


def test_a_fitted_ranker_is_taken_as_it_is(market: Split):
    ease = RANKERS["ease"]().fit(market)
    ensemble = plain(market, "ease", fitted={Prerequisite("ease"): ease})
    assert ensemble.rankers[0] is ease
    assert ensemble.weights == (1.0,)


@pytest.mark.parametrize("feedback", [False, True])
def test_served_lists_keep_the_limit_step_by_step(strong: Fcpo, market: Split, feedback: bool):
    scenario = evaluation_scenario(market, strong.queue_length, Protocol.STANDARD)
    lists = strong.recommend(scenario, length=10, feedback=feedback)
    sensitive = strong.sensitive_.numpy()
    for k in range(1, 11):
        counts = exposure_counts(lists, len(sensitive), k)
        assert counts[sensitive].sum() <= 0.3 * counts.sum() + 1e-9
    assert exposure_counts(lists, len(sensitive), 10)[sensitive].sum() > 0.25 * lists.size


def test_without_a_limit_it_is_the_mixture_of_its_rankers(strong: Fcpo, market: Split):
    free = Fcpo(strong.config.model_copy(update={"alpha_prime": 1.0, "initial_std": 1e-9}), seed=2)
    free.fit(market)
    scenario = evaluation_scenario(market, free.queue_length, Protocol.STANDARD)
    state, _ = scenario.begin(torch.arange(scenario.n_users))
    mixed = sum(
        weight * standardised(ranker.scores(state.users, state.queue))
        for ranker, weight in zip(
            free.policy_.ensemble.rankers, free.policy_.ensemble.weights, strict=True
        )
    )
    best = mixed.masked_fill(state.blocked, -torch.inf).topk(5).indices
    lists = free.recommend(scenario, length=5)
    same = np.mean(np.sort(lists, 1) == np.sort(best.numpy(), 1))
    assert same > 0.99  # but for draws


def test_a_saved_model_recommends_the_same_lists(strong: Fcpo, market: Split, tmp_path: Path):
    strong.save(tmp_path / "model.safetensors")
    loaded = Fcpo.load(tmp_path / "model.safetensors")
    scenario = evaluation_scenario(market, strong.queue_length, Protocol.STANDARD)
    assert loaded.queue_length == strong.queue_length
    assert loaded.description() == strong.description()
    assert np.array_equal(
        loaded.recommend(scenario, length=6), strong.recommend(scenario, length=6)
    )


def test_an_unknown_ranker_is_refused_by_name():
    with pytest.raises(SettingsError, match="no ranker 'popularty'"):
        Fcpo(FcpoConfig(warm_start=("ease", "popularty")))
