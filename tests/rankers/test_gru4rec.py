"""GRU4Rec by hand, on a cycle, and as a fitted ranker."""

import numpy as np
import pytest
import torch

from fairhorizon.data import Interactions, Split, split
from fairhorizon.rankers.gru4rec import Gru4Rec, Gru4RecConfig, GruNetwork

TINY = Gru4RecConfig(dim=8, history=6, batch=64, max_epochs=2)


@pytest.fixture(scope="module")
def fitted(market: Split) -> Gru4Rec:
    return Gru4Rec(TINY, seed=4).fit(market)


def test_the_state_is_that_of_the_recurrence():
    torch.manual_seed(0)
    network = GruNetwork(5, Gru4RecConfig(dim=3)).eval()
    w_in, w_state = network.gru.weight_ih_l0, network.gru.weight_hh_l0
    b_in, b_state = network.gru.bias_ih_l0, network.gru.bias_hh_l0
    state = torch.zeros(3)
    for item, reached in zip((4, 0, 2), network.states(torch.tensor([[4, 0, 2]]))[0], strict=True):
        gate_in = (w_in @ network.items[item] + b_in).split(3)
        gate_state = (w_state @ state + b_state).split(3)
        reset = torch.sigmoid(gate_in[0] + gate_state[0])
        update = torch.sigmoid(gate_in[1] + gate_state[1])
        new = torch.tanh(gate_in[2] + reset * gate_state[2])
        state = (1 - update) * new + update * state
        torch.testing.assert_close(reached, state)


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


def test_a_cycle_is_learnt():
    """After i comes i + 1 of 20: of all items that were not shown, the successor scores best."""
    users, steps = np.divmod(np.arange(40 * 10), 10)
    log = Interactions.from_arrays(users, (users + steps) % 20, timestamps=steps)
    config = Gru4RecConfig(
        dim=16, history=4, dropout=0.1, learning_rate=0.02, batch=32, max_epochs=30
    )
    ranker = Gru4Rec(config).fit(split(log))
    queue = (torch.arange(20)[:, None] + torch.arange(4)) % 20
    scores = ranker.scores(torch.arange(20), queue).scatter(1, queue, -torch.inf)
    assert scores.argmax(1).tolist() == [(start + 4) % 20 for start in range(20)]


def test_same_seed_same_bits_and_other_seed_others(market, fitted):
    torch.rand(3)  # what else is drawn does not matter
    again, other = (Gru4Rec(TINY, seed=seed).fit(market) for seed in (4, 5))
    for name, tensor in fitted.tensors().items():
        assert torch.equal(tensor, again.tensors()[name])
    assert not torch.equal(fitted.network_.items, other.network_.items)


def test_scores_are_without_dropout_and_survive_storage(fitted):
    users, queue = torch.arange(3), torch.randint(80, (3, 6))
    scores = fitted.scores(users, queue)
    assert scores.shape == (3, 80)
    assert not scores.requires_grad
    assert torch.equal(fitted.scores(users, queue), scores)
    restored = Gru4Rec.from_parts(fitted.tensors(), fitted.description())
    assert torch.equal(restored.scores(users, queue), scores)
    assert restored.queue_length == 6
