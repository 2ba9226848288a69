"""FCPO with a warm start as a whole: any level from one fit, files, and what is fitted on what."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fairhorizon.data.splits import Split, earlier_part
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.config import PRESETS, FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.networks import StateEncoder
from fairhorizon.fcpo.policies import rows_of
from fairhorizon.fcpo.training import SoftmaxEpisodes, Training
from fairhorizon.limits.counts import Exposure
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.als import Als
from fairhorizon.rankers.candidates import (
    CatalogueCandidates,
    ScoredCandidates,
    fit_temperature,
)
from fairhorizon.recommenders.base import FitTask, LogPart, Prerequisite
from fairhorizon.recommenders.lists.features import EnsembleItems
from fairhorizon.recommenders.progress import RoundReport
from fairhorizon.settings import changed
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def scenario(market: Split, strong_model: Fcpo) -> Scenario:
    return evaluation_scenario(market, strong_model.queue_length, Protocol.STANDARD)


def share_of(lists: NDArray[np.int64], model: Fcpo) -> float:
    shown = lists[lists >= 0]
    return int(model.sensitive_.numpy()[shown].sum()) / len(shown)


def timeless(reports: list[RoundReport]) -> list[RoundReport]:
    return [replace(report, seconds=0.0) for report in reports]


def weights(training: Training) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(training.actor.parameters()).detach()


def test_the_defaults_are_the_preset_fast():
    assert FcpoConfig() == PRESETS["fast"]
    assert FcpoConfig.preset("paper", rounds=7).rounds == 7
    assert FcpoConfig.preset("paper").policy == "gaussian"
    assert FcpoConfig.preset("paper", alpha_prime=0.3).limit_in_training == 0.3
    assert FcpoConfig(alpha_prime=0.3).limit_in_training == FcpoConfig().training_limit
    assert FcpoConfig(alpha_prime=0.3, training_limit=None).limit_in_training == 0.3


def test_settings_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="set attention to even"):
        FcpoConfig.preset("paper", attention="log")
    with pytest.raises(ConfigError, match="learns on-policy"):
        FcpoConfig(buffer_rounds=2)
    with pytest.raises(ConfigError, match="starts=unseen is for a warm start"):
        FcpoConfig(warm_start=())


@pytest.mark.parametrize("feedback", [False, True])
def test_one_model_serves_any_level(strong_model: Fcpo, scenario: Scenario, feedback: bool):
    shares = []
    for level in (0.15, 0.5):
        lists = strong_model.with_level(level).recommend(scenario, length=6, feedback=feedback)
        shares.append(share_of(lists, strong_model))
        assert level - 0.02 < shares[-1] <= level + 1e-9
        assert (lists >= 0).all()
    assert strong_model.alpha_prime == 1.0  # it stays as it was
    assert share_of(strong_model.recommend(scenario, length=6), strong_model) > max(shares)


def test_request_by_request_the_level_holds_after_every_user(
    strong_model: Fcpo, scenario: Scenario
):
    lists = strong_model.with_level(0.3).recommend_one_by_one(scenario, length=6)
    of_group = (strong_model.sensitive_.numpy()[lists] & (lists >= 0)).sum(1).cumsum()
    so_far = (lists >= 0).sum(1).cumsum()
    assert (of_group <= 0.3 * so_far + 1e-9).all()
    assert of_group[-1] > 0.27 * so_far[-1]


def test_a_level_is_a_share(strong_model: Fcpo):
    for level in (0.0, 1.5):
        with pytest.raises(ConfigError, match="is no share of what is shown"):
            strong_model.with_level(level)


def test_a_policy_of_the_paper_serves_its_own_level_only(market: Split, small: FcpoConfig):
    model = Fcpo(small.model_copy(update={"rounds": 0, "alpha_prime": 0.4})).fit(market)
    with pytest.raises(ConfigError, match="and serves no other"):
        model.with_level(0.2)


def test_a_gaussian_policy_over_rankers_serves_any_level_too(
    market: Split, small_strong: FcpoConfig, scenario: Scenario
):
    config = small_strong.model_copy(update={"policy": "gaussian", "rounds": 0})
    model = Fcpo(config, seed=1).fit(market)
    lists = model.with_level(0.2).recommend(scenario, length=6)
    assert 0.18 < share_of(lists, model) <= 0.2


@pytest.mark.parametrize("feedback", [False, True])
def test_a_saved_model_recommends_the_same_lists(
    strong_model: Fcpo, scenario: Scenario, tmp_path: Path, feedback: bool
):
    strong_model.save(tmp_path / "model")
    loaded = Fcpo.load(tmp_path / "model")
    assert loaded.description() == strong_model.description()
    assert loaded.config == strong_model.config
    assert loaded.history_ == timeless(strong_model.history_)
    assert torch.equal(loaded.policy_.histories, strong_model.policy_.histories)
    ours, theirs = (
        model.with_level(0.2).recommend(scenario, length=5, feedback=feedback)
        for model in (strong_model, loaded)
    )
    assert np.array_equal(ours, theirs)


def test_a_resumed_training_goes_on_bit_for_bit(
    market: Split, small_strong: FcpoConfig, strong_model: Fcpo, tmp_path: Path
):
    whole = Fcpo(small_strong, seed=1).training(FitTask.from_split(market))
    list(whole.rounds())
    assert timeless(whole.reports) == timeless(strong_model.history_)  # same seed, same training

    half = Fcpo(small_strong, seed=1).training(FitTask.from_split(market))
    half.round()
    half.save(tmp_path / "checkpoint")
    resumed = Training.load(tmp_path / "checkpoint", market, CPU)
    assert resumed.ensemble is not None
    assert resumed.ensemble.weights == half.ensemble.weights
    list(resumed.rounds())
    assert timeless(resumed.reports) == timeless(whole.reports)
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.best_validation == whole.best_validation
    assert all(torch.equal(resumed.best[name], whole.best[name]) for name in whole.best)

    model = Fcpo().adopt(resumed)
    assert model.description() == strong_model.description()
    state = strong_model.policy_.actor.state_dict()
    assert all(
        torch.equal(value, state[name]) for name, value in model.policy_.actor.state_dict().items()
    )


def test_rankers_learn_from_the_earlier_part_and_at_last_from_all(
    market: Split, small_strong: FcpoConfig
):
    training = Fcpo(small_strong, seed=1).training(FitTask.from_split(market))
    early = earlier_part(market)
    count = len(training.ensemble.rankers)
    assert [r.fingerprint_ for r in training.ensemble.rankers] == [
        early.train.fingerprint()
    ] * count
    ease = RANKERS["ease:recent"]().fit(early)
    assert torch.equal(training.ensemble.rankers[0].item_weights_, ease.item_weights_)

    training.round()
    stopped = Fcpo().adopt(training)  # in mid-training nothing is fitted again
    assert [r.fingerprint_ for r in stopped.policy_.ensemble.rankers] == [
        early.train.fingerprint()
    ] * count

    list(training.rounds())
    model = Fcpo().adopt(training)
    assert [r.fingerprint_ for r in model.policy_.ensemble.rankers] == [
        market.train.fingerprint()
    ] * count
    whole = RANKERS["ease:recent"]().fit(market)
    assert torch.equal(model.policy_.ensemble.rankers[0].item_weights_, whole.item_weights_)
    assert not torch.equal(whole.item_weights_, ease.item_weights_)
    assert model.policy_.ensemble.weights == training.ensemble.weights  # those of unseen feedback
    assert model.policy_.actor.items.ensemble is model.policy_.ensemble
    assert model.fingerprint_ == market.train.fingerprint()
    assert model.policy_.histories.tolist() == market.train.user_counts().tolist()


def test_rankers_that_are_fitted_are_taken_as_they_are(market: Split, small_strong: FcpoConfig):
    config = small_strong.model_copy(update={"rounds": 0})
    early, whole = (RANKERS["ease:recent"]().fit(part) for part in (earlier_part(market), market))
    model = Fcpo(config, seed=1)
    fitted = {
        Prerequisite("ease:recent"): whole,
        Prerequisite("ease:recent", LogPart.EARLIER): early,
    }
    training = model.training(FitTask.from_split(market, fitted=fitted))
    assert training.ensemble.rankers[0] is early
    model.adopt(training)
    assert model.policy_.ensemble.rankers[0] is whole
    anywhere = config.model_copy(update={"starts": "anywhere"})
    training = Fcpo(anywhere, seed=1).training(FitTask.from_split(market, fitted=fitted))
    assert training.ensemble.rankers[0] is whole


def test_a_training_begins_with_the_weights_of_unseen_feedback(
    market: Split, small_strong: FcpoConfig
):
    training = Fcpo(small_strong, seed=1).training(FitTask.from_split(market))
    episodes, actor = training.episodes, training.actor
    assert isinstance(episodes, SoftmaxEpisodes)
    assert isinstance(episodes.initial.candidate_set, ScoredCandidates)
    assert isinstance(actor.items, EnsembleItems)
    chosen = training.serving.weights  # by lists; one factor makes probabilities of their sum
    expected = fit_temperature(chosen, episodes.initial.candidate_set, episodes.liked())
    assert training.ensemble.weights == expected
    assert expected != chosen
    with torch.no_grad():
        queues = actor.items.encoder_input(episodes.validation.queue)
        rows = rows_of(actor(torch.arange(60), queues), 1)[:, 0]
    wanted = torch.tensor([*expected, 0.0]).expand(60, -1)
    torch.testing.assert_close(rows, wanted, rtol=0, atol=0.1)  # states differ by little


def test_the_policy_kept_is_no_worse_than_its_start(market: Split, small_strong: FcpoConfig):
    training = Fcpo(small_strong, seed=1).training(FitTask.from_split(market))
    before = training.episodes.validate()
    list(training.rounds())
    seen = [report.validation for report in training.reports if report.validation is not None]
    assert training.best_validation == max(before, *seen)
    training.actor.load_state_dict(training.best_actor().state_dict())
    assert training.episodes.validate() == training.best_validation


def test_rounds_that_change_nothing_do_not_replace_the_start(
    market: Split, small_strong: FcpoConfig
):
    training = Fcpo(small_strong.model_copy(update={"kl_limit": 1e-12}), seed=1).training(
        FitTask.from_split(market)
    )
    list(training.rounds())
    assert training.evaluations_since_best == 2  # after rounds 2 and 4: no better than the start


def test_a_served_policy_has_no_price_of_its_own(strong_model: Fcpo, scenario: Scenario):
    actor = strong_model.policy_.actor
    with torch.no_grad():
        rows = rows_of(actor(torch.arange(60), actor.items.encoder_input(scenario.queue)), 1)
    assert (rows[..., -1] == 0).all()


def test_a_limit_is_approached_round_by_round(market: Split, small_strong: FcpoConfig):
    """The sampled lists, which no control mends, come down to the limit in training."""
    config = small_strong.model_copy(
        update={"training_limit": 0.3, "rounds": 12, "patience": 99, "kl_limit": 0.05}
    )
    training = Fcpo(config, seed=1).training(FitTask.from_split(market))
    reports = list(training.rounds())
    assert reports[0].limit == pytest.approx(0.3 * 5)
    assert reports[0].cost > 1.5 * reports[0].limit
    assert np.mean([report.cost for report in reports[-3:]]) < 1.2 * reports[0].limit
    assert max(report.kl for report in reports) <= 0.05


def test_the_limit_counts_slots_by_their_attention(market: Split, small_strong: FcpoConfig):
    """With every item sensitive a list costs what its slots count: the limit at a share of 1."""
    config = small_strong.model_copy(
        update={"attention": "log", "list_length": 3, "training_limit": 1.0, "horizon": 2}
    )
    everything = np.ones(market.train.n_items, dtype=bool)
    report = Fcpo(config, seed=1).training(FitTask.from_split(market, sensitive=everything)).round()
    assert report.cost == pytest.approx(2 * (1 + 1 / np.log2(3) + 0.5))
    assert report.limit == pytest.approx(report.cost)


def test_a_softmax_over_embeddings_serves_the_level_it_was_trained_for(
    market: Split, small: FcpoConfig
):
    config = small.model_copy(update={"policy": "softmax", "alpha_prime": 0.3, "rounds": 2})
    training = Fcpo(config, seed=1).training(FitTask.from_split(market))
    assert isinstance(training.episodes, SoftmaxEpisodes)
    assert isinstance(training.episodes.initial.candidate_set, CatalogueCandidates)
    list(training.rounds())
    model = Fcpo().adopt(training)
    scenario = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    for feedback in (False, True):
        lists = model.recommend(scenario, length=6, feedback=feedback)
        assert share_of(lists, model) <= 0.3 + 1e-9
        assert (lists >= 0).all()
    with pytest.raises(ConfigError, match="serves no other"):
        model.with_level(0.5)


def test_the_mean_of_a_gaussian_policy_is_served_where_it_is_asked_for(
    market: Split, small: FcpoConfig
) -> None:
    sampled = Fcpo(small.model_copy(update={"rounds": 1}), seed=1).fit(market)
    mean = Fcpo(changed(sampled.config, {"serve": "mean"}), seed=1)
    mean._take(sampled.policy_)
    scenario = evaluation_scenario(market, sampled.queue_length, Protocol.STANDARD)
    actor = sampled.policy_.actor
    with torch.no_grad():
        W = actor(torch.arange(scenario.n_users), scenario.queue).chunk(2, dim=1)[0]
    blocked = scenario.state(torch.arange(scenario.n_users)).blocked
    scores = (W @ actor.encoder.item_vectors[:-1].T).masked_fill(blocked, -torch.inf)
    best = scores.topk(5).indices.numpy()
    for seed in (1, 2):
        assert np.array_equal(mean.rank(scenario, length=5, seed=seed).lists, best)
    lists = [sampled.rank(scenario, length=5, seed=seed).lists for seed in (1, 2)]
    assert not np.array_equal(*lists)
    server = mean.online([], seed=1)
    state = scenario.state(torch.arange(scenario.n_users))
    shown = server.serve(state, Exposure(market.train.item_counts()))
    assert np.array_equal(shown[:, 0].numpy(), best[:, 0])


def test_the_standard_deviation_of_w_falls_by_the_same_factor_every_round(market: Split) -> None:
    """Updates are as small as nothing here, so it is 0.3 x 0.5^3 after three rounds."""
    settings = {"als_embeddings": {"dim": 5}, "alternatives": 2, "users_per_round": 20}
    config = FcpoConfig.preset(
        "tuned", rounds=3, horizon=3, kl_limit=1e-12, std_decay=0.5, **settings
    )
    training = Fcpo(config, seed=1).training(FitTask.from_split(market))
    users = torch.arange(60)
    queues = training.episodes.validation.queue
    before = training.actor(users, queues).detach()
    for _ in training.rounds():
        pass
    after = training.actor(users, queues).detach()
    means, logs = (after - before).chunk(2, dim=1)
    torch.testing.assert_close(means, torch.zeros(60, 5), rtol=0, atol=1e-4)
    torch.testing.assert_close(logs, torch.full((60, 5), 3 * math.log(0.5)), rtol=0, atol=1e-4)


def test_the_tuned_preset_is_the_papers_design_over_vectors_of_als(market: Split) -> None:
    config = FcpoConfig.preset(
        "tuned", rounds=2, horizon=3, alternatives=2, als_embeddings={"dim": 5, "l2": 1}
    )
    model = Fcpo(config, seed=1).fit(market)
    encoder = model.policy_.actor.encoder
    assert isinstance(encoder, StateEncoder)
    assert model.policy_.actor.is_gaussian
    for vectors in (encoder.user_vectors, encoder.item_vectors[:-1]):
        assert vectors.shape[1] == config.als_embeddings.dim
        assert float(vectors.square().mean()) == pytest.approx(1, rel=1e-5)
    als = Als(config.als_embeddings, seed=1).fit(market).item_vectors_
    lengths = als.norm(dim=1).sqrt()
    expected = (als / lengths[:, None]).nan_to_num()  # an item that nobody took is 0
    scale = encoder.item_vectors[:-1].norm() / expected.norm()
    torch.testing.assert_close(encoder.item_vectors[:-1], expected * scale)
