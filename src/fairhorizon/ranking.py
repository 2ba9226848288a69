"""Lists from scores. Of equal scores the smaller item comes first, however a list is made."""

import torch
from torch import Tensor


def top(scores: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """(b, most) best scores and their items, best first; no more than there are items."""
    most = min(most, scores.shape[1])
    values, items = scores.topk(most)
    if most:
        last = values[:, -1:]
        # topk takes any of those that equal the last; of -inf, which is never shown, it may
        crowded = ((scores >= last).sum(1) > most) & (last.squeeze(1) > -torch.inf)
        rows = crowded.nonzero().squeeze(1)
        if len(rows):
            ordered = scores[rows].sort(dim=1, descending=True, stable=True)
            values[rows], items[rows] = ordered.values[:, :most], ordered.indices[:, :most]
    return best_first(values, items)


def best_first(values: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Both by falling value, and by item where values are equal."""
    items, order = items.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, items.gather(1, order)


def best_lists(scores: Tensor, sensitive: Tensor, length: int, allowance: int) -> Tensor:
    """(b, length) best items by score, at most `allowance` of them sensitive.

    -1 where nothing is left that may be shown, which is what a score of -inf says.
    """
    if allowance < length:
        groups = [
            top(scores.masked_fill(mask, -torch.inf), most)
            for mask, most in ((~sensitive, allowance), (sensitive, length))
        ]
        values, items = best_first(*(torch.cat(both, dim=1) for both in zip(*groups, strict=True)))
    else:
        values, items = top(scores, length)
    shown = items.masked_fill(values == -torch.inf, -1)[:, :length]
    return torch.nn.functional.pad(shown, (0, length - shown.shape[1]), value=-1)
