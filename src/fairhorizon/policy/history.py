"""A state in a few numbers: how many items a user has taken, and how popular they were."""

import torch
from torch import Tensor, nn


class HistoryEncoder(nn.Module):
    """[numbers of the user; mean of the items' numbers over the queue], with nothing to learn.

    Rankers model the user's taste. A policy that weights them also needs to know how reliable they
    are; a few numbers are enough for that, without memorising users.
    """

    user_vectors: Tensor  # (n_users, numbers)
    item_vectors: Tensor  # (n_items + 1, numbers); the last row, zeros, stands for "no item"

    def __init__(self, user_vectors: Tensor, item_vectors: Tensor) -> None:
        super().__init__()
        padding = item_vectors.new_zeros(1, item_vectors.shape[1])
        self.register_buffer("user_vectors", user_vectors.contiguous())
        self.register_buffer("item_vectors", torch.cat([item_vectors, padding]))
        self.output_size = user_vectors.shape[1] + item_vectors.shape[1]

    def forward(self, users: Tensor, queues: Tensor) -> Tensor:
        """(m, numbers) states of m users with queues (m, N)."""
        known = (queues < len(self.item_vectors) - 1).sum(1, keepdim=True).clamp(min=1)
        summed = nn.functional.embedding_bag(queues, self.item_vectors, mode="sum")
        return torch.cat([self.user_vectors[users], summed / known], dim=1)


def numbers_of_users(histories: Tensor) -> Tensor:
    """(n_users, 1): the logarithm of each user's number of items (n_users,), standardised."""
    return _standardised(torch.log1p(histories.float()))[:, None]


def numbers_of_items(counts: Tensor, sensitive: Tensor) -> Tensor:
    """(n_items, 3): the group of each item, and its popularity in the first and second power."""
    popularity = _standardised(torch.log1p(counts.float())).to(sensitive.device)
    return torch.stack([sensitive.float(), popularity, popularity.square()], dim=1)


def _standardised(values: Tensor) -> Tensor:
    spread = values.std(correction=0)
    return (values - values.mean()) / spread.where(spread > 0, torch.ones_like(spread))
