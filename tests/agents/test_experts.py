"""The warm start: signals by hand, weights by validation, a model that survives its file."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fairhorizon.agents import Fcpo, FcpoConfig
from fairhorizon.agents.experts import ExpertSignals, Panel, best_weights, standardised
from fairhorizon.data import Split
from fairhorizon.environment import Protocol, evaluation_scenario
from fairhorizon.metrics import exposure_counts
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.early_stopping import Validation


@pytest.fixture(scope="module")
def panel(market: Split) -> Panel:
    return Panel.fit(("ease", "popularity"), market, Protocol.STANDARD, 0, {})


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


def test_a_score_is_the_weighted_sum_of_signals_less_the_price_of_the_group(panel: Panel):
    users, n = torch.arange(4), len(panel.rankers[0].tensors()["item_weights"])
    queue = torch.randint(n, (4, panel.queue_length), generator=torch.Generator().manual_seed(1))
    sensitive = torch.arange(n) % 3 == 0
    signals = ExpertSignals(panel, users, queue, sensitive)
    weights = torch.tensor([[1.0, 0.5, 2.0], [0.0, 1.0, 0.0], [2.0, 0.0, -1.0], [1.0, 1.0, 0.0]])
    z = [standardised(ranker.scores(users, queue)) for ranker in panel.rankers]
    by_hand = weights[:, :1] * z[0] + weights[:, 1:2] * z[1] - weights[:, 2:] * sensitive
    assert torch.allclose(signals.scores(weights), by_hand, atol=1e-6)

    signals.relabel(~sensitive)  # what enters the group is dearer at once
    moved = signals.scores(weights) - by_hand
    price = weights[:, 2:]
    assert torch.allclose(moved, price * sensitive - price * ~sensitive, atol=1e-6)

    rows = torch.tensor([2])
    signals.relabel(sensitive)
    signals.refresh(rows, users[rows], queue[:1])
    again = ExpertSignals(panel, users[rows], queue[:1], sensitive).scores(weights[rows])
    assert torch.allclose(signals.scores(weights)[rows], again, atol=1e-6)
    others = torch.tensor([0, 1, 3])
    assert torch.allclose(signals.scores(weights)[others], by_hand[others], atol=1e-6)


def test_the_weights_are_the_best_of_those_looked_at(panel: Panel, market: Split):
    """No worse on the validation items than any ranker alone."""
    validation = Validation(market, panel.queue_length)

    def judged(weights: tuple[float, ...]) -> float:
        return validation.ndcg(
            lambda users, queue: sum(
                weight * standardised(ranker.scores(users, queue))
                for ranker, weight in zip(panel.rankers, weights, strict=True)
            )
        )

    assert panel.weights == best_weights(panel.rankers, market, Protocol.STANDARD)
    assert max(panel.weights) == 1
    assert judged(panel.weights) >= max(judged((1.0, 0.0)), judged((0.0, 1.0)))


def test_a_fitted_ranker_is_taken_as_it_is(market: Split):
    ease = RANKERS["ease"]().fit(market)
    panel = Panel.fit(("ease",), market, Protocol.STANDARD, 0, {"ease": ease})
    assert panel.rankers[0] is ease
    assert panel.weights == (1.0,)


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
        for ranker, weight in zip(free.panel_.rankers, free.panel_.weights, strict=True)
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
    with pytest.raises(ValueError, match="no ranker 'popularty'"):
        FcpoConfig(warm_start=("ease", "popularty"))
