"""Algorithm 1 as a whole: limits, checkpoints, early stopping."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.training import KIND, Training
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.recommenders.base import FitTask
from fairhorizon.recommenders.progress import Listener, RoundReport
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.storage import load_model, save_model
from fairhorizon.vocabulary import Protocol

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


def timeless(reports: list[RoundReport]) -> list[RoundReport]:
    return [replace(report, seconds=0.0) for report in reports]


def weights(training: Training) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(training.actor.parameters()).detach()


def test_a_round_draws_a_proposal_a_step_and_one_order_of_states() -> None:
    """Nothing else takes from the generator, so that the same seed keeps giving the same model."""
    data = split(synthetic(37, 50, 16, seed=5).interactions)
    config = FcpoConfig.preset("paper", rounds=1, pmf=MfConfig(dim=4, max_epochs=1), horizon=2)
    training = Fcpo(config).training(FitTask.from_split(data))
    training.round()
    expected = torch.Generator().manual_seed(0)
    for _ in range(2):
        torch.randn(37, 4, generator=expected)
    torch.randperm(len(training.learner.buffer.rounds[0].state_users), generator=expected)
    assert torch.equal(training.generator.get_state(), expected.get_state())


@pytest.mark.parametrize("buffer_rounds", [1, 3])
def test_a_resumed_training_goes_on_bit_for_bit(
    market: Split, small: FcpoConfig, tmp_path: Path, buffer_rounds: int
) -> None:
    config = small.model_copy(update={"buffer_rounds": buffer_rounds, "alpha_prime": 0.3})
    whole = Fcpo(config, seed=4).training(FitTask.from_split(market))
    list(whole.rounds())

    half = Fcpo(config, seed=4).training(FitTask.from_split(market))
    for _ in range(3):
        half.round()
    half.save(tmp_path / "checkpoint")
    resumed = Training.load(tmp_path / "checkpoint", market, CPU)
    list(resumed.rounds())

    assert timeless(resumed.reports) == timeless(whole.reports)
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.best.keys() == whole.best.keys()
    assert all(torch.equal(resumed.best[name], whole.best[name]) for name in whole.best)


def test_a_checkpoint_is_refused_on_other_data(
    market: Split, small: FcpoConfig, tmp_path: Path
) -> None:
    Fcpo(small).training(FitTask.from_split(market)).save(tmp_path / "checkpoint")
    other = split(synthetic(60, 80, 20, seed=4).interactions)
    with pytest.raises(ModelError, match="trained on other data"):
        Training.load(tmp_path / "checkpoint", other, CPU)


def test_a_checkpoint_with_a_setting_of_before_is_refused(
    market: Split, small: FcpoConfig, tmp_path: Path
) -> None:
    file = tmp_path / "checkpoint"
    Fcpo(small).training(FitTask.from_split(market)).save(file)
    tensors, description = load_model(file, KIND)
    description["config"]["group_price"] = False
    save_model(file, KIND, tensors, description)
    with pytest.raises(ModelError, match="there is no group_price \\(fit it again\\)"):
        Training.load(file, market, CPU)


def test_a_resumed_training_may_go_on_for_longer_but_not_otherwise(
    market: Split, small: FcpoConfig
) -> None:
    training = Fcpo(small).training(FitTask.from_split(market))
    training.extend(small.model_copy(update={"rounds": 9}))
    assert training.config.rounds == 9
    with pytest.raises(ConfigError, match="gamma_r, kl_limit cannot change"):
        training.extend(small.model_copy(update={"gamma_r": 0.5, "kl_limit": 1.0}))


def test_stops_after_five_evaluations_without_a_better_one(
    market: Split, small: FcpoConfig
) -> None:
    # A trust region this small changes nothing: every evaluation sees the same lists.
    config = small.model_copy(update={"rounds": 100, "kl_limit": 1e-12, "evaluate_every": 1})
    training = Fcpo(config, seed=1).training(FitTask.from_split(market))
    assert len(list(training.rounds())) == 1 + config.patience
    assert training.finished


def test_the_policy_kept_is_the_best_that_keeps_the_limit(market: Split, small: FcpoConfig) -> None:
    training = Fcpo(small).training(FitTask.from_split(market))
    kept = weights(training)
    within = RoundReport(1, 1.0, 2.0, 2.0, 0.0, "inside", 1.0, 0.10, 0.0)
    training._keep_best(within)
    with torch.no_grad():
        for parameter in training.actor.parameters():
            parameter.add_(1.0)
    training._keep_best(replace(within, cost=3.0, validation=0.5))  # better, but above the limit
    training._keep_best(replace(within, validation=0.05))  # within, but worse
    best = torch.nn.utils.parameters_to_vector(training.best_actor().parameters())
    assert torch.equal(best.detach(), kept)
    assert training.best_validation == 0.10
    assert training.evaluations_since_best == 2


def test_cost_and_limit_are_discounted_alike(market: Split, small: FcpoConfig) -> None:
    # With every item sensitive each step costs K: the discounted cost is the limit at alpha' = 1.
    config = small.model_copy(update={"gamma_c": 0.5, "list_length": 2})
    everything = np.ones(market.train.n_items, dtype=bool)
    report = Fcpo(config).training(FitTask.from_split(market, sensitive=everything)).round()
    assert report.cost == pytest.approx(2 * (1 + 0.5 + 0.25 + 0.125 + 0.0625))
    assert report.limit == pytest.approx(report.cost)


def test_a_saved_model_recommends_the_same_lists(
    market: Split, small: FcpoConfig, tmp_path: Path
) -> None:
    model = Fcpo(small, seed=2).fit(market)
    model.save(tmp_path / "model")
    again = Fcpo.load(tmp_path / "model")
    scenario = evaluation_scenario(market, small.history, Protocol.STANDARD)
    lists = model.recommend(scenario, length=7)
    assert np.array_equal(lists, again.recommend(scenario, length=7))
    assert not np.array_equal(lists, again.recommend(scenario, length=7, seed=99))
    assert again.history_ == model.history_
    assert again.config == model.config


def test_lists_of_several_items_have_no_repeats_and_no_history(
    market: Split, small: FcpoConfig
) -> None:
    config = small.model_copy(update={"list_length": 3, "rounds": 2})
    model = Fcpo(config).fit(market)
    scenario = evaluation_scenario(market, config.history, Protocol.STANDARD)
    lists = model.recommend(scenario, length=10, feedback=True)
    assert lists.shape == (60, 10)
    for user, shown in enumerate(lists.tolist()):
        past = market.train.items[market.train.users == user]
        assert len(set(shown)) == 10
        assert not set(shown) & set(past.tolist())


def test_an_exhausted_catalogue_leaves_empty_slots(market: Split, small: FcpoConfig) -> None:
    model = Fcpo(small.model_copy(update={"rounds": 1})).fit(market)
    scenario = evaluation_scenario(market, small.history, Protocol.STANDARD)
    lists = model.recommend(scenario, length=80)
    known = market.train.user_counts() + market.validation.user_counts()
    assert np.array_equal((lists >= 0).sum(axis=1), 80 - known)


def test_too_few_items_for_an_episode_is_said(market: Split, small: FcpoConfig) -> None:
    config = small.model_copy(update={"horizon": 30, "list_length": 3})
    with pytest.raises(ConfigError, match="30 lists of 3 need more than the 80 items"):
        Fcpo(config).training(FitTask.from_split(market))


def test_a_resumed_training_knows_how_long_nothing_was_better(
    market: Split, small: FcpoConfig, tmp_path: Path
) -> None:
    training = Fcpo(small).training(FitTask.from_split(market))
    for value in (0.1, 0.05, 0.07):
        training._keep_best(RoundReport(1, 1.0, 2.0, 2.0, 0.0, "inside", 1.0, value))
    training.save(tmp_path / "checkpoint")
    resumed = Training.load(tmp_path / "checkpoint", market, CPU)
    assert (resumed.best_validation, resumed.evaluations_since_best) == (0.1, 2)


def test_a_listener_can_stop_a_training_after_a_round(market: Split, small: FcpoConfig) -> None:
    class Impatient(Listener):
        def round(self, report: RoundReport) -> None:
            self.stop = report.round == 2

    model = Fcpo(small).fit(market, listener=Impatient())
    assert [report.round for report in model.history_] == [1, 2]
    assert not model.finished_


def test_a_training_is_not_resumed_with_other_groups_of_the_same_size(
    market: Split, small: FcpoConfig, tmp_path: Path
) -> None:
    config = small.model_copy(update={"rounds": 1})
    groups = np.arange(market.train.n_items) < 16
    Fcpo(config).fit(market, sensitive=groups, checkpoint=tmp_path)
    with pytest.raises(ConfigError, match="was trained with other groups"):
        Fcpo(config).fit(market, sensitive=np.roll(groups, 1), checkpoint=tmp_path, resume=True)


def test_what_everybody_earns_at_a_step_changes_no_update(market: Split, small: FcpoConfig) -> None:
    """Rewards are held against the mean of their step, so that time alone teaches nothing."""
    thetas = []
    for extra in (0.0, 5.0):
        training = Fcpo(small, seed=1).training(FitTask.from_split(market))
        fresh = training.episodes.generate(torch.Generator().manual_seed(0))
        earned = fresh.rewards + extra * torch.arange(small.horizon)
        before = weights(training).clone()
        training.learner.learn(
            replace(fresh, rewards=earned), torch.tensor([100.0]), torch.Generator().manual_seed(0)
        )
        thetas.append(weights(training) - before)
    assert thetas[0].norm() > 1e-3
    torch.testing.assert_close(thetas[1], thetas[0], rtol=0.01, atol=1e-4)
