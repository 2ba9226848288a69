"""Weights of what users took: strengths of a log's rows, recency of a history, frequent items."""

import math

import numpy as np
import torch
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.histories import UserItems


def strengths(log: Interactions) -> Tensor | None:
    """(n,) how strong each row is, by its total weight; None for a log without weights.

    log(1 + w / median) divided by its mean. Damped, because quantities and times spent have long
    tails: a hundred pieces are a stronger sign than ten, but no ten times as strong. By the median,
    so that the unit (seconds or minutes, pieces or dozens) does not matter. With a mean of 1,
    settings such as a penalty keep their meaning.
    """
    totals = log.total_weights()
    if totals is None or not len(totals):
        return None
    typical = float(np.median(totals[totals > 0])) if totals.any() else 1.0
    damped = np.log1p(totals / typical)
    mean = float(damped.mean())
    return torch.from_numpy(damped / mean if mean else np.ones(len(damped)))


def strengths_by_user(log: Interactions) -> Tensor | None:
    """(n,) the same in the order of `UserItems.of(log)`: user by user, each in time order."""
    found = strengths(log)
    if found is None:
        return None
    return found[torch.from_numpy(np.argsort(log.users, kind="stable"))]


HALF_LIVES = 20  # older items have less than 2^-20 < 1e-6 of the weight
ROOM = 100  # for items added while the model is in use
QUEUED = 2**26  # items in the queues of all users, at most: 512 MiB


def longest_history(split: Split) -> int:
    """The most items that a user has before the test, with room for more.

    Of so many users that their queues would not fit into memory, the most recent items that do.
    """
    return most_items_read(UserItems.of(split.train, split.validation)) + ROOM


def most_items_read(histories: UserItems) -> int:
    """The length of the longest history; less where the queues of all users would be too large."""
    longest, fits = int(histories.indptr.diff().max()), QUEUED // max(1, histories.n_users)
    return min(longest, max(HALF_LIVES, fits))


def items_to_look_at(half_life: float | None, longest: int) -> int:
    """The number of recent items that are used: 20 half-lives, or the longest history."""
    return longest if half_life is None else min(longest, math.ceil(HALF_LIVES * half_life))


def weights_by_age(queue: Tensor, half_life: float | None) -> Tensor:
    """(N,) 2^(-age / half_life) of the places in a queue (b, N), age 0 for the newest, the last."""
    age = torch.arange(queue.shape[1] - 1, -1, -1, device=queue.device)
    return (
        torch.ones(age.shape).to(queue.device)
        if half_life is None
        else torch.exp2(-age / half_life)
    )


def weighted_history(queue: Tensor, n_items: int, half_life: float | None) -> Tensor:
    """(b, n_items) of 2^(-age / half_life), age 0 for the newest; all 1 without a half-life.

    queue: (b, N) items, newest last, padded in front with n_items.
    """
    history = torch.zeros(len(queue), n_items + 1, device=queue.device)
    history.scatter_add_(1, queue, weights_by_age(queue, half_life).expand(len(queue), -1))
    return history[:, :-1]


def frequent(histories: UserItems, most: int) -> Tensor:
    """(n_items,) numbers from 0 for the `most` items with most users, by code; -1 for the rest."""
    counts = torch.bincount(histories.items, minlength=histories.n_items)
    chosen = counts.sort(descending=True, stable=True).indices[:most].sort().values
    numbers = torch.full((histories.n_items,), -1)
    numbers[chosen] = torch.arange(len(chosen))
    return numbers


def popularity_scale(split: Split, exponent: float) -> Tensor:
    """(n_items,) count^exponent, by which scores are divided; 1 for an item without a count."""
    counts = torch.tensor(split.train.item_counts(), dtype=torch.float32)
    return counts.clamp(min=1) ** exponent
