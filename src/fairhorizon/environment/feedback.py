"""Who likes what, read from a log; and where episodes start."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.data import Interactions, Split
from fairhorizon.environment.dynamics import State
from fairhorizon.histories import UserItems
from fairhorizon.protocol import Protocol


@dataclass(frozen=True)
class LoggedFeedback:
    """Users like what they took later on in the log, whenever it is shown."""

    positive: Tensor  # (b, n_items) bool

    def answer(self, lists: Tensor) -> Tensor:
        return self.positive.gather(1, lists.clamp(min=0)) & (lists >= 0)


@dataclass(frozen=True)
class Scenario:
    """Where every user's episode starts and which items earn positive feedback in it."""

    queue: Tensor  # (n_users, N) most recent items, padded with n_items
    positive: UserItems
    excluded: UserItems | None  # never recommended

    @property
    def n_users(self) -> int:
        return len(self.queue)

    def begin(
        self, users: Tensor, device: torch.device | None = None
    ) -> tuple[State, LoggedFeedback]:
        """The users' initial state and how they answer."""
        positive = self.positive.mask(users).to(device)
        blocked = torch.zeros_like(positive) if self.excluded is None else self.excluded.mask(users)
        state = State(users.to(device), self.queue[users].to(device), blocked.to(device))
        return state, LoggedFeedback(positive)


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
    return _held_out((split.train,), split.validation, history, protocol)


def evaluation_scenario(split: Split, history: int, protocol: Protocol) -> Scenario:
    """Start from the last `history` items before the test items, which are liked."""
    return _held_out((split.train, split.validation), split.test, history, protocol)


def serving_scenario(log: Interactions, history: int) -> Scenario:
    """Start from the end of a whole log, to serve what is not in it; no feedback is known."""
    known = UserItems.of(log)
    nothing = UserItems(torch.zeros_like(known.indptr), known.items[:0], known.n_items)
    return Scenario(known.last(history), nothing, known)


def _held_out(
    past: tuple[Interactions, ...], liked: Interactions, history: int, protocol: Protocol
) -> Scenario:
    known = UserItems.of(*past)
    excluded = known if protocol is Protocol.STANDARD else None
    return Scenario(known.last(history), UserItems.of(liked), excluded)
