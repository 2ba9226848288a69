"""What GRU4Rec and SASRec have in common: history, padding, a cycle, seeds and storage."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, split
from fairhorizon.rankers import next_item
from fairhorizon.rankers.gru4rec import Gru4Rec, Gru4RecConfig
from fairhorizon.rankers.sasrec import SasRec, SasRecConfig
from fairhorizon.rankers.training import Validation

RANKERS: dict[Any, Any] = {Gru4Rec: Gru4RecConfig, SasRec: SasRecConfig}
TINY = {"dim": 8, "history": 6, "batch": 64, "max_epochs": 2}


@pytest.fixture(scope="module", params=RANKERS)
def fitted(request: pytest.FixtureRequest, market: Split) -> Any:
    return request.param(RANKERS[request.param](**TINY), seed=4).fit(market)


def test_padding_and_what_is_older_than_the_history_change_nothing(fitted):
    users, queue = torch.arange(2), torch.tensor([[80, 80, 80, 5, 17, 3], [9, 8, 7, 6, 5, 4]])
    scores = fitted.scores(users, queue)
    padded = torch.cat([torch.full((2, 4), 80), queue], dim=1)
    torch.testing.assert_close(fitted.scores(users, padded), scores)
    torch.testing.assert_close(fitted.scores(users[:1], queue[:1, 3:]), scores[:1])
    older = torch.cat([torch.tensor([[80, 80], [70, 71]]), queue], dim=1)
    torch.testing.assert_close(fitted.scores(users, older), scores)


def test_an_empty_history_is_scored_by_the_bias_alone(fitted):
    scores = fitted.scores(torch.arange(1), torch.full((1, 6), 80))
    assert torch.equal(scores[0], fitted.network_.bias)
    assert fitted.network_.bias.abs().max() > 0


@pytest.mark.parametrize("ranker", RANKERS)
def test_a_cycle_is_learnt(ranker):
    """After i comes i + 1 of 20: of all items that were not shown, the successor scores best."""
    users, steps = np.divmod(np.arange(40 * 10), 10)
    log = from_arrays(users, (users + steps) % 20, timestamps=steps)
    config = RANKERS[ranker](
        dim=16, history=4, dropout=0.1, learning_rate=0.02, batch=32, max_epochs=30
    )
    fitted = ranker(config).fit(split(log))
    queue = (torch.arange(20)[:, None] + torch.arange(4)) % 20
    scores = fitted.scores(torch.arange(20), queue).scatter(1, queue, -torch.inf)
    assert scores.argmax(1).tolist() == [(start + 4) % 20 for start in range(20)]


@pytest.mark.parametrize("ranker", RANKERS)
def test_a_cycle_is_learnt_from_a_sample_of_the_items(ranker, monkeypatch):
    """The same cycle of 20, of which each step sees 6."""
    monkeypatch.setattr(ranker, "recipe", replace(ranker.recipe, all_items_at_most=19))
    monkeypatch.setattr(next_item, "SAMPLED_ITEMS", 6)
    users, steps = np.divmod(np.arange(40 * 10), 10)
    log = from_arrays(users, (users + steps) % 20, timestamps=steps)
    config = RANKERS[ranker](
        dim=16, history=4, dropout=0.1, learning_rate=0.02, batch=32, max_epochs=30
    )
    fitted = ranker(config).fit(split(log))
    queue = (torch.arange(20)[:, None] + torch.arange(4)) % 20
    scores = fitted.scores(torch.arange(20), queue).scatter(1, queue, -torch.inf)
    assert scores.argmax(1).tolist() == [(start + 4) % 20 for start in range(20)]


def test_same_seed_same_bits_with_sampled_items_too(market, fitted, monkeypatch):
    monkeypatch.setattr(type(fitted), "recipe", replace(type(fitted).recipe, all_items_at_most=79))
    monkeypatch.setattr(next_item, "SAMPLED_ITEMS", 16)
    first, again = (type(fitted)(fitted.config, seed=4).fit(market) for _ in range(2))
    for name, tensor in first.tensors().items():
        assert torch.equal(tensor, again.tensors()[name])
    assert not torch.equal(first.network_.items, fitted.network_.items)


def test_same_seed_same_bits_and_other_seed_others(market, fitted):
    torch.rand(3)  # what else is drawn does not matter
    again, other = (type(fitted)(fitted.config, seed=seed).fit(market) for seed in (4, 5))
    for name, tensor in fitted.tensors().items():
        assert torch.equal(tensor, again.tensors()[name])
    assert not torch.equal(fitted.network_.items, other.network_.items)


@pytest.mark.parametrize("ranker", RANKERS)
def test_the_network_is_that_of_the_best_epoch(ranker, market):
    config = RANKERS[ranker](**TINY | {"max_epochs": 40, "learning_rate": 0.05}, patience=2)
    values: list[float] = []
    fitted = ranker(config, seed=1).fit(market, on_epoch=lambda _, value: values.append(value))
    assert len(values) > 3
    assert max(values) > max(values[-2:])
    assert Validation(market, config.history).ndcg(fitted.scores) == max(values)


def test_scores_are_without_dropout_and_survive_storage(fitted):
    users, queue = torch.arange(3), torch.randint(80, (3, 6))
    scores = fitted.scores(users, queue)
    assert scores.shape == (3, 80)
    assert not scores.requires_grad
    assert torch.equal(fitted.scores(users, queue), scores)
    restored = type(fitted).from_parts(fitted.tensors(), fitted.description())
    assert torch.equal(restored.scores(users, queue), scores)
    assert restored.queue_length == 6
