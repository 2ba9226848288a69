"""The network of SASRec by hand, and its causality."""

import pytest
import torch

from fairhorizon.data.splits import Split
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


def test_heads_must_share_the_dimensions_evenly():
    with pytest.raises(ConfigError, match="dim 8 is not a multiple of heads 3"):
        AttentionNetwork(5, SasRecConfig(dim=8, heads=3))
