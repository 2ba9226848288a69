"""Who likes what, read from a log; and where episodes start."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from fairhorizon.data import Interactions, Split
from fairhorizon.environment.dynamics import State


class Protocol(StrEnum):
    """Which items may be recommended at test time."""

    STANDARD = "standard"  # nothing of the user's history, as every running system does
    PAPER = "paper"  # everything, training items included, as the paper's public code does


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

    def mask(self, users: Tensor) -> Tensor:
        """(len(users), n_items) bool: which items each user's set holds."""
        counts = self.counts(users)
        rows = torch.repeat_interleave(torch.arange(len(users)), counts)
        within = torch.arange(len(rows)) - (torch.cumsum(counts, 0) - counts)[rows]
        mask = torch.zeros(len(users), self.n_items, dtype=torch.bool)
        mask[rows, self.items[self.indptr[users][rows] + within]] = True
        return mask

    def last(self, n: int) -> Tensor:
        """(n_users, n) queue of the last n items, newest last, padded in front with n_items."""
        back = torch.arange(n - 1, -1, -1)
        positions = self.indptr[1:, None] - 1 - back
        known = positions >= self.indptr[:-1, None]
        if not len(self.items):
            return torch.full(known.shape, self.n_items)
        return torch.where(known, self.items[positions.clamp(min=0)], self.n_items)


@dataclass(frozen=True)
class Scenario:
    """Where every user's episode starts and which items earn positive feedback in it."""

    queue: Tensor  # (n_users, N) most recent items, padded with n_items
    positive: UserItems
    excluded: UserItems | None  # never recommended

    @property
    def n_users(self) -> int:
        return len(self.queue)

    def begin(self, users: Tensor, device: torch.device | None = None) -> tuple[State, Tensor]:
        """The users' initial state, and their feedback as a (len(users), n_items) mask."""
        positive = self.positive.mask(users).to(device)
        blocked = torch.zeros_like(positive) if self.excluded is None else self.excluded.mask(users)
        state = State(users.to(device), self.queue[users].to(device), blocked.to(device))
        return state, positive


def training_scenario(
    items: UserItems, history: int, protocol: Protocol, cuts: Tensor | None = None
) -> Scenario:
    """Start from the first `history` training items; those after them are liked.

    With `cuts`, a user's episode starts from the items before the user's cut instead.
    """
    if cuts is None:
        cuts = torch.full((items.n_users,), history)
    past, future = items.cut(cuts)
    excluded = past if protocol is Protocol.STANDARD else None
    return Scenario(past.last(history), future, excluded)


def random_cuts(items: UserItems, history: int, generator: torch.Generator) -> Tensor:
    """A moment of every user's log, with `history` items before it where there are more."""
    counts = items.indptr.diff()
    earliest = torch.minimum(torch.full_like(counts, history), (counts - 1).clamp(min=0))
    room = (counts - earliest).clamp(min=1)
    return earliest + (torch.rand(len(counts), generator=generator) * room).long()


def validation_scenario(split: Split, history: int, protocol: Protocol) -> Scenario:
    """Start from the last `history` training items; the validation item is liked."""
    return _held_out(split.train, split.validation, (split.train,), history, protocol)


def evaluation_scenario(split: Split, history: int, protocol: Protocol) -> Scenario:
    """Start from the last `history` training items; the test items are liked."""
    past = (split.train, split.validation)
    return _held_out(split.train, split.test, past, history, protocol)


def serving_scenario(log: Interactions, history: int) -> Scenario:
    """Start from the end of a whole log, to serve what is not in it; no feedback is known."""
    known = UserItems.of(log)
    nothing = UserItems(torch.zeros_like(known.indptr), known.items[:0], known.n_items)
    return Scenario(known.last(history), nothing, known)


def _held_out(
    train: Interactions,
    liked: Interactions,
    past: tuple[Interactions, ...],
    history: int,
    protocol: Protocol,
) -> Scenario:
    excluded = UserItems.of(*past) if protocol is Protocol.STANDARD else None
    return Scenario(UserItems.of(train).last(history), UserItems.of(liked), excluded)


def _pointers(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
