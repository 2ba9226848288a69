"""The value of showing an item to a user, in units of NDCG, so that users can be compared."""

import torch
from torch import Tensor

from fairhorizon.ranking import discount


def item_values(probabilities: Tensor, likes: Tensor, length: int) -> Tensor:
    """(b, C) probability that the user likes the item, over the DCG of the user's ideal list.

    probabilities (b, C): that the next item the user takes is this one; likes (b,): how many items
    the user is expected to take. A hit counts more for a user who takes few.
    """
    liked = -torch.expm1(likes[:, None] * torch.log1p(-probabilities.clamp(max=1 - 1e-6)))
    return liked / ideal(likes, length)[:, None]


def ideal(likes: Tensor, length: int) -> Tensor:
    """DCG of a list of `length` with all of a user's `likes` first; linear in between."""
    gains = discount(torch.arange(1, length + 1).to(likes))
    totals = torch.cat([gains.new_zeros(1), gains.cumsum(0)])
    whole = likes.clamp(0, length).floor().long()
    rest = likes.clamp(0, length) - whole
    return totals[whole] + rest * gains[whole.clamp(max=length - 1)]
