"""Lists from scores."""

import torch
from torch import Tensor


def best_lists(scores: Tensor, sensitive: Tensor, length: int, allowance: int) -> Tensor:
    """(b, length) best items by score, at most `allowance` of them sensitive.

    -1 where nothing is left that may be shown, which is what a score of -inf says.
    """
    if allowance < length:
        groups = [
            scores.masked_fill(mask, -torch.inf).topk(min(most, scores.shape[1]))
            for mask, most in ((~sensitive, allowance), (sensitive, length))
        ]
        values = torch.cat([group.values for group in groups], dim=1)
        items = torch.cat([group.indices for group in groups], dim=1)
    else:
        values, items = scores.topk(length)
    best = values.topk(length)
    return items.gather(1, best.indices).masked_fill(best.values == -torch.inf, -1)
