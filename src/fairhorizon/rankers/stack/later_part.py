"""Parts of a training log on which the settings and the weights of rankers are chosen.

What counts is what is measured in the end: the NDCG of lists over all that users took next.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split, earlier_part
from fairhorizon.histories import UserItems
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.weights import most_items_read
from fairhorizon.ranking import discount, rows_at_once, top, users_at_once
from fairhorizon.vocabulary import Protocol

LENGTH = 20  # of the lists
FEWEST_ITEMS = 3  # of a history; where there are longer ones, shorter ones are left out
SCORES = 2**25  # of users times items, by whose lists is chosen
ENOUGH_USERS = 4096  # that many also where there are so many items that this is more scores


@dataclass(frozen=True)
class LaterBlock:
    """Some users of a later part, with a table of all items for each."""

    users: Tensor  # (b,)
    queue: Tensor  # (b, N) the items before
    blocked: Tensor  # (b, n_items) bool: may not be in a list
    liked: Tensor  # (b, n_items) bool: taken after

    @torch.no_grad()
    def scores(self, ranker: Ranker[Any]) -> Tensor:
        """(b, n_items)."""
        return ranker.scores(self.users, self.queue)

    def ndcg(self, scores: Tensor) -> Tensor:
        """(b,) NDCG of every user's list by these scores."""
        _, items = top(scores.masked_fill(self.blocked, -torch.inf), LENGTH)
        gains = discount(torch.arange(1, items.shape[1] + 1))
        return (self.liked.gather(1, items) * gains).sum(1) / ideal(self.liked)


@dataclass(frozen=True)
class LaterPart:
    """What users took before some moment, and what they took after it."""

    split: Split  # its training log is what was before
    users: Tensor  # (b,) who took something before and after
    before: UserItems
    later: UserItems
    protocol: Protocol

    @classmethod
    def of(cls, split: Split, later: UserItems, protocol: Protocol, *, seed: int) -> "LaterPart":
        """After the training log of a split come the `later` items; of a sample of users."""
        before = UserItems.of(split.train)
        lengths = before.indptr.diff()
        some, enough = later.indptr.diff() > 0, lengths >= FEWEST_ITEMS
        users = (some & (enough if (some & enough).any() else lengths > 0)).nonzero().squeeze(1)
        most_users = max(ENOUGH_USERS, rows_at_once(before.n_items, SCORES))
        if len(users) > most_users:
            drawn = torch.randperm(len(users), generator=torch.Generator().manual_seed(seed))
            users = users[drawn[:most_users]].sort().values
        return cls(split, users, before, later, protocol)

    @classmethod
    def of_training(cls, parts: Split, protocol: Protocol, *, seed: int) -> "LaterPart":
        """The last fifth of every user's training items, and the item before them."""
        inner = earlier_part(parts)
        later = UserItems.of(inner.validation, inner.test)
        return cls.of(inner, later, protocol, seed=seed)

    def blocks(self) -> Iterator[LaterBlock]:
        """All users, as many at a time as there is memory for their scores."""
        longest = most_items_read(self.before)
        for users in self.users.split(users_at_once(self.before.n_items)):
            known = self.before.mask(users)
            blocked = known if self.protocol is Protocol.STANDARD else torch.zeros_like(known)
            queue = self.before.only(users).last(longest)
            yield LaterBlock(users, queue, blocked, self.later.mask(users) & ~blocked)

    def ndcg(self, ranker: Ranker[Any]) -> Tensor:
        """(b,) NDCG of every user's list by a ranker."""
        return torch.cat([block.ndcg(block.scores(ranker)) for block in self.blocks()])


def ideal(liked: Tensor) -> Tensor:
    """(b,) DCG of a list with all liked items first."""
    gains = discount(torch.arange(1, LENGTH + 1))
    return gains.cumsum(0)[(liked.sum(1) - 1).clamp(0, LENGTH - 1)]


def frequent_part(parts: Split, *, most_users: int, most_items: int, seed: int) -> Split:
    """The split with only the most frequent items of its training log, and a sample of users."""
    train = parts.train
    items = np.sort(np.argsort(-train.item_counts(), kind="stable")[:most_items])
    users = np.arange(train.n_users)
    if len(users) > most_users:
        users = np.sort(np.random.default_rng(seed).permutation(users)[:most_users])
    logs = (parts.train, parts.validation, parts.test)
    return Split(*(_rows_of(log, users, items) for log in logs))


def _rows_of(log: Interactions, users: NDArray[np.int64], items: NDArray[np.int64]) -> Interactions:
    """The rows of some users and items, with codes of their own."""
    user_codes, item_codes = np.full(log.n_users, -1), np.full(log.n_items, -1)
    user_codes[users], item_codes[items] = np.arange(len(users)), np.arange(len(items))
    rows = log.take((user_codes[log.users] >= 0) & (item_codes[log.items] >= 0))
    return replace(
        rows,
        users=user_codes[rows.users],
        items=item_codes[rows.items],
        user_ids=log.user_ids[users],
        item_ids=log.item_ids[items],
        attributes={name: values[items] for name, values in log.attributes.items()},
        weights=rows.total_weights(),
        repeated=None,  # they are in the weights
    )
