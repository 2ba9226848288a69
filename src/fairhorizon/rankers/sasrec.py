"""SASRec (Kang & McAuley 2018): self-attention over a user's recent items predicts the next."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from fairhorizon.errors import ConfigError
from fairhorizon.rankers.next_item import (
    STEADY,
    NextItemRanker,
    SequenceConfig,
    SequenceNetwork,
    WindowDropout,
)
from fairhorizon.settings import Choice, Search


class SasRecConfig(SequenceConfig):
    """Settings of SASRec."""

    dropout: Annotated[float, Search(0, 0.6)] = Field(0.3, ge=0, lt=1)
    """Share of the vector coordinates that are set to 0 in training, the same ones in a window."""
    learning_rate: Annotated[float, Search(0.0005, 0.02, log=True)] = Field(0.004, gt=0)
    """Learning rate of Adam."""
    blocks: Annotated[int, Choice((1, 2))] = Field(1, ge=1)
    """Number of self-attention blocks."""
    heads: Annotated[int, Choice((1, 2, 4))] = Field(2, ge=1)
    """Attention heads of a block; dim has to be a multiple of it."""


class AttentionBlock(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)); no position sees a later one."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_forward = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.merge = nn.Linear(dim, dim)
        self.feed_forward = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.dropout = WindowDropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, n, dim = x.shape
        parts = self.query_key_value(self.before_attention(x)).view(b, n, 3, self.heads, -1)
        # (b, N, 3, heads, d) -> three times (b, heads, N, d).
        query, key, value = parts.permute(2, 3, 0, 1, 4).transpose(1, 2).unbind()
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.merge(seen.transpose(1, 2).reshape(b, n, dim)))
        outputs: Tensor = x + self.dropout(self.feed_forward(self.before_forward(x)))
        return outputs


class AttentionNetwork(SequenceNetwork):
    """Blocks of attention over item vector + position vector."""

    def __init__(self, n_items: int, config: SasRecConfig) -> None:
        super().__init__(n_items, config.dim)
        if config.dim % config.heads:
            raise ConfigError(
                f"dim {config.dim} is not a multiple of heads {config.heads} (set one of them)"
            )
        # Position 0 is the oldest item of the window, as sequences are padded at the end.
        self.positions = nn.Parameter(torch.randn(config.history, config.dim) * 0.02)
        self.blocks = nn.Sequential(
            *(
                AttentionBlock(config.dim, config.heads, config.dropout)
                for _ in range(config.blocks)
            )
        )
        self.norm = nn.LayerNorm(config.dim)
        self.dropout = WindowDropout(config.dropout)

    def states(self, sequences: Tensor) -> Tensor:
        x = self.embedded(sequences) + self.positions[: sequences.shape[1]]
        outputs: Tensor = self.norm(self.blocks(self.dropout(x)))
        return outputs


class SasRec(NextItemRanker[SasRecConfig]):
    """SASRec (Kang & McAuley 2018): self-attention over recent items predicts the next one.

    Trained with the softmax at every position, over the catalogue or a sample of it.
    """

    method = "sasrec"
    config_class = SasRecConfig
    recipe = STEADY

    def network(self, n_items: int) -> AttentionNetwork:
        return AttentionNetwork(n_items, self.config)
