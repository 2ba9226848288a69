"""The items of every user in time order: the form of a log for models and environment."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.data.interactions import Interactions

CELLS_AT_ONCE = 2**20  # cells of a queue that are filled together


@dataclass(frozen=True)
class UserItems:
    """A set of items for every user, in time order, in compressed rows."""

    indptr: Tensor  # (n_users + 1,)
    items: Tensor  # (n,)
    n_items: int

    @classmethod
    def of(cls, *logs: Interactions) -> "UserItems":
        """Each user's items of the logs, one log after the other."""
        users = np.concatenate([log.users for log in logs])
        items = np.concatenate([log.items for log in logs])
        counts = np.bincount(users, minlength=logs[0].n_users)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        items = items[np.argsort(users, kind="stable")]
        return cls(torch.from_numpy(indptr), torch.from_numpy(items), logs[0].n_items)

    @property
    def n_users(self) -> int:
        return len(self.indptr) - 1

    def cut(self, positions: Tensor) -> "tuple[UserItems, UserItems]":
        """Each user's items before the user's position, and those from it on."""
        counts = self.indptr.diff()
        position = torch.arange(len(self.items)) - self.indptr[:-1].repeat_interleave(counts)
        early = position < positions.repeat_interleave(counts)
        before = torch.minimum(counts, positions)
        return (
            UserItems(_pointers(before), self.items[early], self.n_items),
            UserItems(_pointers(counts - before), self.items[~early], self.n_items),
        )

    def counts(self, users: Tensor) -> Tensor:
        return self.indptr[users + 1] - self.indptr[users]

    def only(self, users: Tensor) -> "UserItems":
        """The sets of some users, in this order."""
        counts = self.counts(users)
        pointers = _pointers(counts)
        within = torch.arange(int(pointers[-1])) - pointers[:-1].repeat_interleave(counts)
        items = self.items[self.indptr[users].repeat_interleave(counts) + within]
        return UserItems(pointers, items, self.n_items)

    def numbered(self, numbers: Tensor) -> "UserItems":
        """The same sets without items whose number (n_items,) is -1, the others by their number."""
        kept = numbers[self.items] >= 0
        users = torch.arange(self.n_users).repeat_interleave(self.indptr.diff())[kept]
        counts = torch.bincount(users, minlength=self.n_users)
        return UserItems(_pointers(counts), numbers[self.items[kept]], int(numbers.max()) + 1)

    def mask(self, users: Tensor) -> Tensor:
        """(len(users), n_items) bool: the items in each user's set."""
        counts = self.counts(users)
        rows = torch.repeat_interleave(torch.arange(len(users)), counts)
        within = torch.arange(len(rows)) - (torch.cumsum(counts, 0) - counts)[rows]
        mask = torch.zeros(len(users), self.n_items, dtype=torch.bool)
        mask[rows, self.items[self.indptr[users][rows] + within]] = True
        return mask

    def last(self, n: int) -> Tensor:
        """(n_users, n) queue of the last n items, newest last, padded in front with n_items."""
        queue = torch.full((self.n_users, n), self.n_items)
        if not n or not len(self.items):
            return queue
        back = torch.arange(n - 1, -1, -1)
        rows = max(1, CELLS_AT_ONCE // n)  # the queue alone should be large, not what it is made by
        starts, ends = self.indptr[:-1, None].split(rows), self.indptr[1:, None].split(rows)
        for part, start, end in zip(queue.split(rows), starts, ends, strict=True):
            positions = end - 1 - back
            recent = self.items[positions.clamp(min=0)]
            part.copy_(torch.where(positions >= start, recent, self.n_items))
        return queue


def _pointers(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
