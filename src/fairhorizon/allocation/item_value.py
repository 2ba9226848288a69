"""What it is worth to show an item to a user, in NDCG: so that users can be weighed up."""

import torch
from torch import Tensor


def worth(probabilities: Tensor, likes: Tensor, length: int) -> Tensor:
    """(b, C) chance that the user likes the item, over the DCG of the user's ideal list.

    probabilities (b, C): that the next item the user takes is this one; likes (b,): how many the
    user is expected to take. A hit counts more for a user who will take little.
    """
    liked = -torch.expm1(likes[:, None] * torch.log1p(-probabilities.clamp(max=1 - 1e-6)))
    return liked / ideal(likes, length)[:, None]


def ideal(likes: Tensor, length: int) -> Tensor:
    """DCG of a list of `length` that has all of a user's `likes` first, in between linear."""
    gains = 1 / torch.log2(torch.arange(2, length + 2).to(likes))
    totals = torch.cat([gains.new_zeros(1), gains.cumsum(0)])
    whole = likes.clamp(0, length).floor().long()
    rest = likes.clamp(0, length) - whole
    return totals[whole] + rest * gains[whole.clamp(max=length - 1)]
