"""Lists from scores. Ties go to the smaller item code, however a list is made."""

from collections.abc import Iterator

import torch
from torch import Tensor

SCORES_AT_ONCE = 2**22  # of float32, 16 MiB: memory that is used again, block after block
IN_CACHE = 2**19  # of float32: 2 MiB, which stay in the cache


def top(scores: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """(b, most) best scores and their items, best first; at most all items."""
    most = min(most, scores.shape[1])
    values, items = scores.topk(most)
    if most:
        last = values[:, -1:]
        # topk picks arbitrarily among items that tie with the last one, which would make lists
        # depend on the device. Ties at -inf do no harm: such items are never shown.
        crowded = ((scores >= last).sum(1) > most) & (last.squeeze(1) > -torch.inf)
        rows = crowded.nonzero().squeeze(1)
        if len(rows):
            items[rows] = _first_of_equals(scores[rows], last[rows], most)
            values[rows] = scores[rows].gather(1, items[rows])
    return best_first(values, items)


def _first_of_equals(scores: Tensor, last: Tensor, most: int) -> Tensor:
    """(b, most) the items above the last score (b, 1), and the first of those that equal it."""
    # `~(<=)` and not `>`: a NaN counts as above, as it does in topk.
    above, equal = ~(scores <= last), scores == last
    left = most - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1, dtype=torch.int32) <= left))
    return chosen.nonzero()[:, 1].view(len(scores), most)


def best_first(values: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Both by falling value, and by item where values are equal."""
    # First by item, then stably by value: of equal values the smaller item comes first.
    items, order = items.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, items.gather(1, order)


def first_highest(scores: Tensor) -> Tensor:
    """(b,) the first column with the highest score of its row.

    On a CPU, NumPy's argmax takes a fifth of the time of torch's.
    """
    if scores.is_cpu:
        return torch.from_numpy(scores.numpy().argmax(axis=1))
    return scores.argmax(1)


def first_best(scores: Tensor) -> Tensor:
    """As `first_highest`, but -1 where all scores of a row are -inf: nothing may be shown."""
    best = first_highest(scores)
    highest = scores.gather(1, best[:, None]).squeeze(1)
    return best.where(highest > -torch.inf, -1)


def best_lists(scores: Tensor, sensitive: Tensor, length: int, allowance: int) -> Tensor:
    """(b, length) best items by score, at most `allowance` of them sensitive.

    -1 where nothing is left that may be shown; a score of -inf means that an item may not.
    """
    if allowance < length:
        # The list has at most `allowance` sensitive items and at most `length` others, so the best
        # of each group suffice, merged by score.
        groups = [
            top(scores.masked_fill(mask, -torch.inf), most)
            for mask, most in ((~sensitive, allowance), (sensitive, length))
        ]
        values, items = best_first(*(torch.cat(both, dim=1) for both in zip(*groups, strict=True)))
    else:
        values, items = top(scores, length)
    shown = items.masked_fill(values == -torch.inf, -1)[:, :length]
    return torch.nn.functional.pad(shown, (0, length - shown.shape[1]), value=-1)


def discount(ranks: Tensor) -> Tensor:
    """The weight of a place of a list by its rank 1, 2, ...: 1 / log2(1 + rank), as in DCG.

    `metrics.accuracy.discount` is the same for arrays.
    """
    return 1 / torch.log2(1 + ranks)


def standardised(scores: Tensor) -> Tensor:
    """Mean 0 and spread 1 over the items, a row each; equal scores are all 0."""
    # Blocks of rows that stay in the cache through all passes, written to their final place.
    made = torch.empty_like(scores, dtype=torch.float32, memory_format=torch.contiguous_format)
    for part, to in some_at_a_time(scores, made):
        mean, spread = moments(part)
        torch.sub(part, mean, out=to).div_(spread)
    return made


def moments(scores: Tensor) -> tuple[Tensor, Tensor]:
    """(b, 1) mean and (b, 1) spread of each row of scores; the spread of equal ones counts as 1."""
    # The rounding of a sum over a strided row depends on how many rows there are; then the same
    # user would have different scores in another batch.
    scores = scores.float().contiguous()
    mean = scores.mean(1, keepdim=True)
    spread = (scores - mean).square_().mean(1, keepdim=True).sqrt_()
    return mean, spread.where(spread > 0, 1.0)


def users_at_once(n_items: int) -> int:
    """The number of users to score at once, by the memory for scores of all items."""
    return rows_at_once(n_items, SCORES_AT_ONCE)


def rows_at_once(width: int, cells: int) -> int:
    """The number of rows of a table of that width with at most `cells` cells; at least one."""
    return max(1, cells // max(1, width))


def some_at_a_time(*tables: Tensor, cells: int = IN_CACHE) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of all tables in blocks of at most `cells` cells of the first table."""
    rows = rows_at_once(tables[0].shape[1], cells)
    return zip(*(table.split(rows) for table in tables), strict=True)
