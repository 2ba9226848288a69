"""SASRec by hand, its causality, on a cycle, and as a fitted ranker."""

import numpy as np
import pytest
import torch

from fairhorizon.data import Interactions, Split, split
from fairhorizon.errors import ConfigError
from fairhorizon.rankers.sasrec import AttentionBlock, AttentionNetwork, SasRec, SasRecConfig

TINY = SasRecConfig(dim=8, heads=2, history=6, batch=64, max_epochs=2)


@pytest.fixture(scope="module")
def fitted(market: Split) -> SasRec:
    return SasRec(TINY, seed=4).fit(market)


def test_a_block_is_attention_and_feed_forward_each_added_to_its_input():
    torch.manual_seed(0)
    block = AttentionBlock(dim=4, heads=2, dropout=0.5).eval()
    x = torch.randn(5, 4)
    normed = block.before_attention(x)
    query, key, value = block.query_key_value(normed).split(4, dim=1)
    seen = torch.zeros(5, 4)
    for at in range(5):
        for head in (slice(0, 2), slice(2, 4)):
            match = key[: at + 1, head] @ query[at, head] / 2**0.5
            seen[at, head] = match.softmax(0) @ value[: at + 1, head]
    y = x + block.merge(seen)
    first, last = block.feed_forward[0], block.feed_forward[-1]
    expected = y + last(first(block.before_forward(y)).relu())
    torch.testing.assert_close(block(x[None])[0], expected)


def test_the_future_changes_no_earlier_state(fitted):
    sequences = torch.tensor([[3, 14, 15, 9, 2, 6]])
    changed = torch.tensor([[3, 14, 15, 27, 18, 80]])
    before, after = fitted.network_.states(sequences), fitted.network_.states(changed)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).any(dim=2).all()


def test_the_order_of_the_history_counts(fitted):
    queue = torch.tensor([[3, 14, 15], [14, 3, 15]])
    there, swapped = fitted.scores(torch.arange(2), queue)
    assert (there - swapped).abs().max() > 1e-4


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
    config = SasRecConfig(
        dim=16, history=4, dropout=0.1, learning_rate=0.02, batch=32, max_epochs=30
    )
    ranker = SasRec(config).fit(split(log))
    queue = (torch.arange(20)[:, None] + torch.arange(4)) % 20
    scores = ranker.scores(torch.arange(20), queue).scatter(1, queue, -torch.inf)
    assert scores.argmax(1).tolist() == [(start + 4) % 20 for start in range(20)]


def test_same_seed_same_bits_and_other_seed_others(market, fitted):
    torch.rand(3)  # what else is drawn does not matter
    again, other = (SasRec(TINY, seed=seed).fit(market) for seed in (4, 5))
    for name, tensor in fitted.tensors().items():
        assert torch.equal(tensor, again.tensors()[name])
    assert not torch.equal(fitted.network_.items, other.network_.items)


def test_scores_are_without_dropout_and_survive_storage(fitted):
    users, queue = torch.arange(3), torch.randint(80, (3, 6))
    scores = fitted.scores(users, queue)
    assert scores.shape == (3, 80)
    assert not scores.requires_grad
    assert torch.equal(fitted.scores(users, queue), scores)
    restored = SasRec.from_parts(fitted.tensors(), fitted.description())
    assert torch.equal(restored.scores(users, queue), scores)
    assert restored.queue_length == 6


def test_heads_must_share_the_dimensions_evenly():
    with pytest.raises(ConfigError, match="dim 8 cannot be shared by 3 heads"):
        AttentionNetwork(5, SasRecConfig(dim=8, heads=3))
