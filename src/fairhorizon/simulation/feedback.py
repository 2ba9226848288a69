"""Feedback of users, read from a log, and the initial states of episodes."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.histories import ItemSets, UserItems, item_sets
from fairhorizon.simulation.dynamics import Feedback, State
from fairhorizon.vocabulary import Protocol


class Audience(Feedback, Interface):
    """Feedback of a batch of users whose relevance is known for all items.

    Only measurements read the relevance: ideal lists for NDCG, totals for recall. Recommenders see
    the answers.
    """

    @property
    def answers_anew(self) -> bool:
        """Whether an item that is shown again can get positive feedback again."""

    def relevance(self, lists: Tensor) -> Tensor:
        """(b, K) float64: how relevant each item of the lists is to its user now; 0 for -1."""

    def best(self, first: int, last: int) -> Tensor:
        """(b, last - first) float64: relevance of each user's best items, ranks first + 1 to last.

        By present tastes, in falling order, among the items that could be shown at the start; 0
        where there are fewer.
        """

    def total(self) -> Tensor:
        """(b,) float64: total relevance of all items that could be shown, the base of recall."""

    def pass_time(self) -> None:
        """Call after every step: preferences may drift, users who left may come back."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything that changed since the start."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from the `tensors` of another audience of the same users."""


class UserModel(Interface):
    """Initial states and feedback of users, read from a log or simulated."""

    @property
    def n_users(self) -> int:
        """Their codes are 0 to n_users - 1."""

    def begin(
        self, users: Tensor, device: torch.device | None = None, seed: int | None = None
    ) -> tuple[State, Audience]:
        """The users' initial state and their feedback.

        Where feedback is random, `seed` replaces the user model's own.
        """


@dataclass(frozen=True)
class LoggedFeedback:
    """Users like the items they took later in the log, whenever these are shown; no drift.

    An item was taken once, so it counts once, however often it is shown.
    """

    liked: ItemSets
    here = None

    @property
    def positive(self) -> Tensor:
        """(b, n_items) bool: the liked items as a table, for batches that are small enough."""
        return self.liked.mask()

    @property
    def answers_anew(self) -> bool:
        return False

    def answer(self, lists: Tensor) -> Tensor:
        return self.liked.contains(lists)

    def notice(self, lists: Tensor, hits: Tensor) -> None:
        """Users of a log stay."""

    def relevance(self, lists: Tensor) -> Tensor:
        """1 for liked items, else 0."""
        return self.answer(lists).double()

    def best(self, first: int, last: int) -> Tensor:
        # All liked items are equally relevant, so the best n of a user with n of them have
        # relevance 1.
        ranks = torch.arange(first, last, device=self._counts.device)
        return (ranks < self._counts[:, None]).double()

    def total(self) -> Tensor:
        return self._counts.double()

    def pass_time(self) -> None:
        """A log does not drift."""

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Nothing to restore."""

    @cached_property
    def _counts(self) -> Tensor:
        return self.liked.counts()


@dataclass(frozen=True)
class Scenario:
    """The initial state of every user's episode and the items that get positive feedback in it."""

    queue: Tensor  # (n_users, N) most recent items, padded with n_items
    positive: UserItems
    excluded: UserItems | None  # never recommended
    codes: Tensor | None = None  # (n_users,) of the users; None: they are 0 to n_users - 1
    taken: Tensor | None = None  # (n_users,) how many items each has taken; None: as in training
    never_shown: Tensor | None = None  # (n_items,) bool: never recommended to anybody
    worth: Tensor | None = None  # (n_users,) by which values are multiplied; None: 1 for everybody

    @property
    def n_users(self) -> int:
        return self.queue.shape[0]

    def begin(
        self,
        users: Tensor,
        device: torch.device | None = None,
        seed: int | None = None,  # noqa: ARG002  # a log is not random
    ) -> tuple[State, LoggedFeedback]:
        """The users' initial state and their feedback."""
        liked = item_sets(self.positive, users, self.positive.n_items, device=device)
        return self.state(users, device), LoggedFeedback(liked)

    def state(self, users: Tensor, device: torch.device | None = None) -> State:
        """The users' initial state."""
        n_items = self.positive.n_items
        blocked = item_sets(self.excluded, users, n_items, self.never_shown, device)
        return State(self.codes_of(users).to(device), self.queue[users].to(device), blocked)

    def blocked_table(self) -> NDArray[np.bool_]:
        """(n_users, n_items) which items may not be shown, of a few users."""
        table = np.zeros((self.n_users, self.positive.n_items), dtype=np.bool_)
        if self.excluded is not None:
            ends, items = self.excluded.indptr.tolist(), self.excluded.items.numpy()
            for row in range(len(table)):
                table[row, items[ends[row] : ends[row + 1]]] = True
        if self.never_shown is not None:
            table |= self.never_shown.numpy()
        return table

    def codes_of(self, rows: Tensor) -> Tensor:
        """(b,) the codes of the users of some rows; they are the rows where no codes are given."""
        return rows if self.codes is None else self.codes[rows]

    def without(self, rows: Tensor, items: Tensor, never_shown: Tensor) -> "Scenario":
        """The scenario with further items that may not be shown.

        rows, items: (n,) each; item i is not shown to the user in row i.
        never_shown: (n_items,) bool, items that nobody is shown.
        """
        nothing = torch.zeros(self.n_users + 1, dtype=torch.int64)
        known = self.excluded or UserItems(nothing, items[:0], self.positive.n_items)
        every = never_shown if self.never_shown is None else self.never_shown | never_shown
        return replace(self, excluded=known.with_pairs(rows, items), never_shown=every)

    def only(self, rows: Tensor) -> "Scenario":
        """The scenario of some users, in the order of `rows`."""
        excluded = None if self.excluded is None else self.excluded.only(rows)
        return replace(
            self,
            queue=self.queue[rows],
            positive=self.positive.only(rows),
            excluded=excluded,
            codes=self.codes_of(rows),
            taken=None if self.taken is None else self.taken[rows],
            worth=None if self.worth is None else self.worth[rows],
        )


def training_scenario(
    items: UserItems, history: int, protocol: Protocol, cuts: Tensor | None = None
) -> Scenario:
    """Start from the first `history` training items; those after them are liked.

    With `cuts`, a user's episode starts from the items before the user's cut instead.
    """
    if cuts is None:
        # Line 6 of Algorithm 1: every episode starts from the same first items.
        cuts = torch.full((items.n_users,), history)
    past, future = items.cut(cuts)
    excluded = past if protocol is Protocol.STANDARD else None
    return Scenario(past.last(history), future, excluded)


def random_cuts(items: UserItems, history: int, generator: torch.Generator) -> Tensor:
    """A random position in every user's log, after at least `history` items if there are more."""
    return cuts_at(items, history, torch.rand(items.n_users, generator=generator))


def cuts_at(items: UserItems, history: int, parts: Tensor) -> Tensor:
    """A position in every user's log, after at least `history` items if there are more.

    parts: (n_users,) below 1, how far along what comes after them.
    """
    counts = items.indptr.diff()
    # At least one item stays behind the cut, so that there is something to like.
    earliest = torch.minimum(torch.full_like(counts, history), (counts - 1).clamp(min=0))
    room = (counts - earliest).clamp(min=1)
    return earliest + (parts * room).long()


def validation_scenario(split: Split, history: int, protocol: Protocol) -> Scenario:
    """Start from the last `history` training items; the validation item is liked."""
    return _held_out((split.train,), split.validation, history, protocol)


def evaluation_scenario(split: Split, history: int, protocol: Protocol) -> Scenario:
    """Start from the last `history` items before the test items, which are liked."""
    return _held_out((split.train, split.validation), split.test, history, protocol)


def serving_scenario(log: Interactions, history: int) -> Scenario:
    """Start from the end of a whole log and exclude its items; no feedback is known."""
    known = UserItems.from_log(log)
    nothing = UserItems(torch.zeros_like(known.indptr), known.items[:0], known.n_items)
    return Scenario(known.last(history), nothing, known)


def _held_out(
    past: tuple[Interactions, ...], liked: Interactions, history: int, protocol: Protocol
) -> Scenario:
    known = UserItems.from_log(*past)
    excluded = known if protocol is Protocol.STANDARD else None
    return Scenario(known.last(history), UserItems.from_log(liked), excluded)
