"""The model of how users answer: against torch's own gradients, and where the truth is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.histories import UserItems
from fairhorizon.simulation import response as module
from fairhorizon.simulation.response import ResponseConfig, ResponseModel, fit_response


def correlation(left: torch.Tensor, right: torch.Tensor) -> float:
    return float(np.corrcoef(left.flatten().numpy(), right.flatten().numpy())[0, 1])


def test_probabilities_by_hand():
    model = ResponseModel(
        user_vectors=torch.tensor([[1.0, 2.0], [0.0, 1.0]]),
        item_vectors=torch.tensor([[1.0, 0.0], [2.0, -1.0], [0.0, 3.0]]),
        user_bias=torch.tensor([0.5, -1.0]),
        item_bias=torch.tensor([0.0, 1.0, -2.0]),
    )
    logits = torch.tensor([[-1.0, -1.0, 0.0], [1.5, 1.5, 4.5]])  # of user 1, then of user 0
    found = model.probabilities(torch.tensor([1, 0]))
    torch.testing.assert_close(found, 1 / (1 + torch.exp(-logits)))


def test_a_market_answers_by_its_truth():
    market = synthetic(30, 40, 5, seed=2)
    found = ResponseModel.from_market(market).probabilities(torch.arange(30))
    np.testing.assert_allclose(found.numpy(), market.relevance, atol=1e-6)


@pytest.mark.parametrize("cells", [80, 2**20], ids=["user by user", "at once"])
def test_gradients_are_those_of_torch(market, monkeypatch, cells):
    monkeypatch.setattr(module, "CELLS", cells)
    generator = torch.Generator().manual_seed(1)
    parts = module._Cells.from_split(market, generator)
    parameters = module._initial(parts, 3, generator)
    for tensor in parameters.values():
        tensor += torch.randn(tensor.shape, generator=generator)
    gradients, held_out_mean = module._gradients(parameters, parts)

    users = torch.arange(60)
    known, taken = UserItems.from_log(market.train).mask(users), torch.zeros(60, 80)
    for log in (market.validation, market.test):
        taken[torch.tensor(log.users), torch.tensor(log.items)] = 1.0
    held_out = (parts.user_fold[:, None] == parts.item_fold) & ~known
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in parameters.items()}
    logits = leaves["p"] @ leaves["q"].T + leaves["a"][:, None] + leaves["b"] + leaves["c"]
    losses = binary_cross_entropy_with_logits(logits, taken, reduction="none")
    losses[~known & ~held_out].sum().backward()
    for name, leaf in leaves.items():
        torch.testing.assert_close(gradients[name], leaf.grad, rtol=1e-4, atol=1e-4)
    assert held_out_mean == pytest.approx(-float(losses.detach()[held_out].mean()), rel=1e-5)
    assert int(held_out.sum()) == pytest.approx(0.1 * int((~known).sum()), rel=0.1)


def test_finds_the_probabilities_that_a_log_was_drawn_from():
    """Every cell is drawn from a logistic model of rank 2: 300 users, 100 items, 15 % taken."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1.2, (300, 2)) @ rng.normal(0, 1.2, (2, 100))
    truth = 1 / (1 + np.exp(2.5 - logits - rng.normal(0, 0.7, 100)))
    users, items = np.nonzero(rng.random(truth.shape) < truth)
    log = Interactions(users, items, np.arange(300), np.arange(100))
    nothing = log.take([])
    model = fit_response(Split(nothing, nothing, log), ResponseConfig(dim=2, l2=3))
    found, drawn = model.probabilities(torch.arange(300)), torch.from_numpy(truth).float()
    popularity = drawn.mean(0).expand_as(drawn)
    assert correlation(found, drawn) > 0.9
    assert correlation(popularity, drawn) < 0.5
    # calibrated: among cells of a like prediction, the mean truth is the prediction
    for low, high in ((0.0, 0.05), (0.05, 0.15), (0.15, 0.35), (0.35, 0.65), (0.65, 1.0)):
        cells = (found >= low) & (found < high)
        assert cells.sum() > 500
        assert float(found[cells].mean()) == pytest.approx(float(drawn[cells].mean()), rel=0.1)


@pytest.fixture(scope="module")
def fitted():
    truth = synthetic(600, 100, 40, dim=3, popularity_skew=0.0, seed=5)
    parts = split(truth.interactions, test_share=0.6)
    return truth, parts, fit_response(parts, ResponseConfig(dim=4))


def test_knows_more_of_a_market_than_popularity_does(fitted):
    truth, parts, model = fitted
    users = torch.arange(600)
    open_cells = ~UserItems.from_log(parts.train).mask(users)
    found, relevance = model.probabilities(users), torch.from_numpy(truth.relevance).float()
    popularity = relevance.mean(0).expand_as(relevance)  # the true one, better than any count
    by_model = correlation(found[open_cells], relevance[open_cells])
    by_popularity = correlation(popularity[open_cells], relevance[open_cells])
    assert by_model > 0.5
    assert by_popularity < 0.3


def test_sums_match_the_counts(fitted):
    _, parts, model = fitted
    users = torch.arange(600)
    open_chances = model.probabilities(users) * ~UserItems.from_log(parts.train).mask(users)
    taken = UserItems.from_log(parts.validation, parts.test).mask(users).float()
    for over in (0, 1):
        sums, counts = open_chances.sum(over), taken.sum(over)
        assert float(sums.mean()) == pytest.approx(float(counts.mean()), rel=0.01)
        assert (sums - counts).abs().mean() < 0.1 * counts.mean()
        assert correlation(sums, counts) > 0.95


def test_training_items_tell_nothing(market):
    """Which items of a user are known changes what is left out, not what counts as taken."""
    config = ResponseConfig(dim=2, max_epochs=5)
    nothing = market.train.take([])
    with_history = fit_response(market, config)
    everything_open = fit_response(replace(market, train=nothing), config)
    users = torch.arange(60)
    known = UserItems.from_log(market.train).mask(users)
    lower = everything_open.probabilities(users) < with_history.probabilities(users)
    # With the known cells open they would count as refused.
    assert lower[known].float().mean() > 0.8


def test_the_same_seed_fits_the_same_model(market):
    config = ResponseConfig(dim=2, max_epochs=4)
    values: dict[int, list[float]] = {0: [], 1: [], 2: []}
    models = [
        fit_response(market, config, seed, lambda _, value, run=run: values[run].append(value))
        for run, seed in enumerate((3, 3, 4))
    ]
    assert torch.equal(models[0].user_vectors, models[1].user_vectors)
    assert torch.equal(models[0].item_bias, models[1].item_bias)
    assert not torch.equal(models[0].user_vectors, models[2].user_vectors)
    assert values[0] == values[1] != values[2]
    assert len(values[0]) == 4
    assert values[0] == sorted(values[0])  # each of the first steps is an improvement


def test_stops_after_patience_and_keeps_the_best(market):
    """Without L2 on 60 users, the fit soon gets worse on the cells left out."""
    config = ResponseConfig(dim=8, l2=0, l2_bias=0, learning_rate=0.2, patience=3)
    values = []
    model = fit_response(market, config, on_epoch=lambda _, value: values.append(value))
    assert len(values) < config.max_epochs
    best = values.index(max(values))
    assert best == len(values) - 1 - config.patience
    shorter = ResponseConfig(**(dict(config) | {"max_epochs": best + 1}))
    assert torch.equal(model.user_vectors, fit_response(market, shorter).user_vectors)


def test_mistakes_are_named(market):
    nothing = market.test.take([])
    with pytest.raises(DataError, match=r"no held-out interactions .* larger test_share"):
        fit_response(replace(market, validation=nothing, test=nothing))
    with pytest.raises(ConfigError, match=r"diverged .*smaller learning_rate"):
        fit_response(market, ResponseConfig(learning_rate=1e30))
