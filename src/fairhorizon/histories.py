"""The items of every user in time order: the form of a log that models and simulation use.

`UserItems` is a log by user; `ItemSets` are sets of items per user, such as those that may not be
shown. The functions at the end weigh what a user took, by its strength in the log and by its age.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError

CELLS_AT_ONCE = 2**20  # cells of a queue that are filled together


@dataclass(frozen=True)
class UserItems:
    """A set of items for every user, in time order, in compressed rows."""

    indptr: Tensor  # (n_users + 1,)
    items: Tensor  # (n,)
    n_items: int

    @classmethod
    def from_log(cls, *logs: Interactions) -> "UserItems":
        """Each user's items of the logs, one log after the other."""
        users = np.concatenate([log.users for log in logs])
        items = np.concatenate([log.items for log in logs])
        counts = np.bincount(users, minlength=logs[0].n_users)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        # A stable sort by user keeps each user's items in the order of the log, which is that of
        # time.
        items = items[np.argsort(users, kind="stable")]
        return cls(torch.from_numpy(indptr), torch.from_numpy(items), logs[0].n_items)

    @property
    def n_users(self) -> int:
        return len(self.indptr) - 1

    def cut(self, positions: Tensor) -> "tuple[UserItems, UserItems]":
        """Each user's items before the user's position, and those from it on."""
        counts = self.indptr.diff()
        # The place of each entry within its user's row: 0, 1, ... from each row's start.
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
        # Gathers ragged rows without a loop: start of the row in the source plus the place within
        # it.
        within = torch.arange(int(pointers[-1])) - pointers[:-1].repeat_interleave(counts)
        items = self.items[self.indptr[users].repeat_interleave(counts) + within]
        return UserItems(pointers, items, self.n_items)

    def with_pairs(self, rows: Tensor, items: Tensor) -> "UserItems":
        """These sets and further items: item i of `items` for the user in row i of `rows`."""
        own = torch.arange(self.n_users).repeat_interleave(self.indptr.diff())
        users, every = torch.cat([own, rows]), torch.cat([self.items, items])
        counts = torch.bincount(users, minlength=self.n_users)
        return UserItems(_pointers(counts), every[users.argsort(stable=True)], self.n_items)

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
            # (users, n) positions in `items`, newest last; those before the user's first item are
            # padding.
            positions = end - 1 - back
            recent = self.items[positions.clamp(min=0)]
            part.copy_(torch.where(positions >= start, recent, self.n_items))
        return queue


def _pointers(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


DENSE_CELLS = 2**28  # users x items: a table of 256 MiB of bool, 1 GiB of float32


def too_wide(users: int, items: int) -> bool:
    """Whether a table of users x items is too large to be held."""
    return users * items > DENSE_CELLS


def check_table(users: int, items: int, what: str = "a long run") -> None:
    """Refuse what serves all users together and keeps tables of users x items."""
    if too_wide(users, items):
        raise ConfigError(
            f"{what} keeps tables of users x items: {users:,} users x {items:,} items are "
            f"{users * items:,} cells, and at most {DENSE_CELLS:,} are possible (take fewer users, "
            "as in a sample of the log, or a smaller catalogue)"
        )


class ItemSets(Interface):
    """A set of items for each of a batch of users, which grows by what they are shown."""

    @property
    def shape(self) -> tuple[int, int]:
        """Users and items."""

    def contains(self, lists: Tensor, rows: Tensor | None = None) -> Tensor:
        """(b, K) bool: whether each item of the lists (b, K) is in the user's set; -1 is not.

        The lists are of all users, or of those at some rows.
        """

    def mask(self, rows: Tensor | None = None) -> Tensor:
        """(len(rows), n_items) bool: the sets of some users as a table; of all unless given.

        It may be the table of the sets itself: do not write to it.
        """

    def counts(self) -> Tensor:
        """(b,) sizes of the sets."""

    def with_items(self, lists: Tensor) -> "ItemSets":
        """The sets with the items of the lists (b, K), of which -1 is none."""

    def without_items(self, lists: Tensor) -> "ItemSets":
        """The sets without the items of the lists (b, K)."""


def item_sets(
    sets: UserItems | None,
    users: Tensor,
    n_items: int,
    never_shown: Tensor | None = None,
    device: torch.device | None = None,
) -> ItemSets:
    """The sets of some users, None for empty ones, and with items `never_shown` (n_items,).

    A table, or keys where that would be too large.
    """
    if too_wide(len(users), n_items):
        return SortedSets.from_user_items(sets, users, n_items, never_shown)
    empty = (len(users), n_items)
    table = torch.zeros(empty, dtype=torch.bool) if sets is None else sets.mask(users)
    if never_shown is not None:
        table |= never_shown
    return TableSets(table.to(device))


@dataclass(frozen=True)
class TableSets:
    """Sets as a table of all users and items."""

    table: Tensor  # (b, n_items) bool

    @property
    def shape(self) -> tuple[int, int]:
        users, items = self.table.shape
        return users, items

    def contains(self, lists: Tensor, rows: Tensor | None = None) -> Tensor:
        return self.mask(rows).gather(1, lists.clamp(min=0)) & (lists >= 0)

    def mask(self, rows: Tensor | None = None) -> Tensor:
        return self.table if rows is None else self.table[rows]

    def counts(self) -> Tensor:
        return self.table.sum(1)

    def with_items(self, lists: Tensor) -> "TableSets":
        return self._marked(lists, True)

    def without_items(self, lists: Tensor) -> "TableSets":
        return self._marked(lists, False)

    def _marked(self, lists: Tensor, is_member: bool) -> "TableSets":
        table = self.table.clone()
        rows, slots = (lists >= 0).nonzero(as_tuple=True)  # an empty slot must not touch any item
        table[rows, lists[rows, slots]] = is_member
        return TableSets(table)


@dataclass(frozen=True)
class SortedSets:
    """Sets as the sorted keys  row * n_items + item  of their members: 8 bytes each.

    For batches whose table of users x items would not fit into memory.
    """

    keys: NDArray[np.int64]  # (n,)
    shape: tuple[int, int]
    never_shown: Tensor | None = None  # (n_items,) bool: in every set, without a key

    @classmethod
    def from_user_items(
        cls, sets: UserItems | None, users: Tensor, n_items: int, never_shown: Tensor | None = None
    ) -> "SortedSets":
        keys = np.zeros(0, dtype=np.int64)
        if sets is not None:
            some = sets.only(users)
            rows = torch.arange(len(users)).repeat_interleave(some.indptr.diff())
            keys = np.unique((rows * n_items + some.items).numpy())
        return cls(keys, (len(users), n_items), never_shown)

    def contains(self, lists: Tensor, rows: Tensor | None = None) -> Tensor:
        known = torch.from_numpy(self._holds(self._keys_of(lists, rows))).to(lists.device)
        if self.never_shown is not None:
            known |= self.never_shown.to(lists.device)[lists.clamp(min=0)]
        return known & (lists >= 0)

    def mask(self, rows: Tensor | None = None) -> Tensor:
        wanted = np.arange(self.shape[0]) if rows is None else rows.cpu().numpy()
        n_items = self.shape[1]
        # The keys of a user are a contiguous range: from row * n_items up to (row + 1) * n_items.
        first, last = (np.searchsorted(self.keys, (wanted + k) * n_items) for k in (0, 1))
        counts = last - first
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        items = self.keys[np.repeat(first, counts) + within] % n_items
        table = torch.zeros(len(wanted), n_items, dtype=torch.bool)
        table[torch.from_numpy(np.repeat(np.arange(len(wanted)), counts)), items] = True
        return table if self.never_shown is None else table | self.never_shown

    def counts(self) -> Tensor:
        ends = np.arange(self.shape[0] + 1) * self.shape[1]
        counts = torch.from_numpy(np.diff(np.searchsorted(self.keys, ends)))
        if self.never_shown is None:
            return counts
        # An item that is never shown is in every set. Those that also have a key must not count
        # twice.
        kept_out = self.never_shown.numpy()[self.keys % self.shape[1]]
        twice = np.bincount(self.keys[kept_out] // self.shape[1], minlength=self.shape[0])
        return counts - torch.from_numpy(twice) + int(self.never_shown.sum())

    def with_items(self, lists: Tensor) -> "SortedSets":
        keys = np.unique(self._keys_of(lists)[lists.cpu().numpy() >= 0])
        fresh = keys[~self._holds(keys)]
        return replace(self, keys=np.insert(self.keys, np.searchsorted(self.keys, fresh), fresh))

    def without_items(self, lists: Tensor) -> "SortedSets":
        keys = np.unique(self._keys_of(lists)[lists.cpu().numpy() >= 0])
        gone = keys[self._holds(keys)]
        return replace(self, keys=np.delete(self.keys, np.searchsorted(self.keys, gone)))

    def _keys_of(self, lists: Tensor, rows: Tensor | None = None) -> NDArray[np.int64]:
        items = lists.cpu().numpy()
        users = np.arange(len(items)) if rows is None else rows.cpu().numpy()
        keys: NDArray[np.int64] = users[:, None] * self.shape[1] + items
        return keys

    def _holds(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        if not len(self.keys):
            return np.zeros(keys.shape, dtype=np.bool_)
        # Clipped, as a key beyond the last would index past the end; it is then found to be
        # different.
        at = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        found: NDArray[np.bool_] = self.keys[at] == keys
        return found


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
    # Weights of 0 say nothing of the unit, and there may be many of them.
    typical = float(np.median(totals[totals > 0])) if totals.any() else 1.0
    damped = np.log1p(totals / typical)
    mean = float(damped.mean())
    return torch.from_numpy(damped / mean if mean else np.ones(len(damped)))


def strengths_by_user(log: Interactions) -> Tensor | None:
    """(n,) the same in the order of `UserItems.from_log(log)`: user by user, each in time order."""
    found = strengths(log)
    if found is None:
        return None
    return found[torch.from_numpy(np.argsort(log.users, kind="stable"))]


HALF_LIVES = 20  # older items have less than 2^-20 < 1e-6 of the weight
SPARE_PLACES = 100  # in a queue, for items added while the model is in use
QUEUED = 2**26  # items in the queues of all users, at most: 512 MiB


def longest_history(split: Split) -> int:
    """The most items that a user has before the test, with room for items taken while serving.

    Less where the queues of all users would not fit into memory: then the oldest are not read.
    """
    return most_items_read(UserItems.from_log(split.train, split.validation)) + SPARE_PLACES


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
    # One column more for the padding, which is dropped at the end.
    history = torch.zeros(len(queue), n_items + 1, device=queue.device)
    history.scatter_add_(1, queue, weights_by_age(queue, half_life).expand(len(queue), -1))
    return history[:, :-1]


def frequent(histories: UserItems, most: int) -> Tensor:
    """(n_items,) numbers from 0 for the `most` items with most users, by code; -1 for the rest."""
    # Stable, so that ties go to the smaller code; then numbered in the order of codes.
    counts = torch.bincount(histories.items, minlength=histories.n_items)
    chosen = counts.sort(descending=True, stable=True).indices[:most].sort().values
    numbers = torch.full((histories.n_items,), -1)
    numbers[chosen] = torch.arange(len(chosen))
    return numbers


def popularity_scale(split: Split, exponent: float) -> Tensor:
    """(n_items,) count^exponent, by which scores are divided; 1 for an item without a count."""
    counts = torch.tensor(split.train.item_counts(), dtype=torch.float32)
    return counts.clamp(min=1) ** exponent
