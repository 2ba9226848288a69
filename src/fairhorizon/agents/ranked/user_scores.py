"""The scores of a ranker for all users of a long run: a table, or shortlists in its place."""

from collections.abc import Iterator
from typing import Any
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.allocation.item_classes import Query
from fairhorizon.allocation.shortlists import ClassShortlists
from fairhorizon.environment.dynamics import State
from fairhorizon.histories import too_wide
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import first_best, users_at_once
from fairhorizon.storage import below


class UserScores(Interface):
    """Scores of what may be shown now, -inf for all else."""

    def begin_step(self, state: State) -> None:
        """Users are in this state; what returns in it may be shown again."""

    def renew(self, state: State, rows: Tensor) -> None:
        """Score these users by their present histories."""

    def best(self) -> Tensor:
        """(b,) each user's best item, -1 where nothing is left."""

    def take(self, items: Tensor) -> None:
        """Items (b,) that were just shown may not be shown again in this step, -1 for none."""

    def some(self, rows: Tensor) -> Tensor:
        """(len(rows), n_items) of some users."""

    def of(self, items: Tensor, rows: Tensor | None = None) -> Tensor:
        """(b, c) of these items (b, c) of all users, or of some."""

    def blocks(self, also: Tensor | None = None) -> Iterator[Tensor]:
        """(some, n_items) of all users in order, a block at a time.

        also: (b, m) items that count as open, -1 for none.
        """

    def tensors(self) -> dict[str, Tensor]:
        """What cannot be computed again to the last digit."""


def user_scores(ranker: Ranker[Any], state: State, stored: dict[str, Tensor]) -> UserScores:
    """Of users in this state; computed, or as another run stored them."""
    if too_wide(*state.blocked_sets.shape):
        return _Shortlisted(ranker, state, below("shortlists.", stored))
    return _ScoreTable(ranker, state, stored.get("scores"))


class _ScoreTable:
    """All scores at once."""

    def __init__(self, ranker: Ranker[Any], state: State, stored: Tensor | None) -> None:
        self.ranker = ranker
        self.open = torch.empty(0)  # (b, n_items), -inf where an item may not be shown
        self.all: Tensor | None = None  # of these items too, where they are shown again
        if stored is None:
            self.open = torch.empty(state.blocked_sets.shape)
            self.all = torch.empty(state.blocked_sets.shape) if state.returning else None
            self.renew(state, torch.arange(len(state.users)))
        else:
            self.open = stored
            if state.returning:
                self.all, self.open = stored, stored.masked_fill(state.blocked, -torch.inf)

    def begin_step(self, state: State) -> None:
        if state.returning:
            self.open = self._with(self.open, state.returning[0])

    def renew(self, state: State, rows: Tensor) -> None:
        for some in rows.split(users_at_once(state.blocked_sets.shape[1])):
            scores = self.ranker.scores(state.users[some], state.queue[some])
            if self.all is not None:
                self.all[some] = scores
            self.open[some] = scores.masked_fill(state.blocked_sets.mask(some), -torch.inf)

    def best(self) -> Tensor:
        return first_best(self.open)

    def take(self, items: Tensor) -> None:
        rows = (items >= 0).nonzero().squeeze(1)
        self.open[rows, items[rows]] = -torch.inf

    def some(self, rows: Tensor) -> Tensor:
        return self.open[rows]

    def of(self, items: Tensor, rows: Tensor | None = None) -> Tensor:
        return (self.open if rows is None else self.open[rows]).gather(1, items)

    def blocks(self, also: Tensor | None = None) -> Iterator[Tensor]:
        scores = self.open if also is None else self._with(self.open.clone(), also)
        yield from scores.split(users_at_once(scores.shape[1]))

    def tensors(self) -> dict[str, Tensor]:
        # computed in other batches, they would differ in the last digits
        return {"scores": self.open if self.all is None else self.all}

    def _with(self, scores: Tensor, items: Tensor) -> Tensor:
        """Scores that have those of these items (b, m) again, -1 for none; changed in place."""
        assert self.all is not None
        rows, places = (items >= 0).nonzero(as_tuple=True)
        at = rows, items[rows, places]
        scores[at] = self.all[at]
        return scores


class _Shortlisted:
    """Whole rows of scores for one block of users at a time; kept are the best items of each."""

    def __init__(self, ranker: Ranker[Any], state: State, stored: dict[str, Tensor]) -> None:
        self.ranker, self.state = ranker, state
        n_items = state.blocked_sets.shape[1]
        self.lists = ClassShortlists(self._lasting, len(state.users), n_items)
        self.lists.restore(stored)
        self.taken: list[Tensor] = []  # in this step
        self.one_class = torch.zeros(n_items, dtype=torch.int64)

    def begin_step(self, state: State) -> None:
        self.state, self.taken = state, []

    def renew(self, state: State, rows: Tensor) -> None:
        self.begin_step(state)
        self.lists.forget(rows)

    def best(self) -> Tensor:
        values, items = self.lists.best(self._query())
        return items[:, 0, 0].where(values[:, 0, 0] > -torch.inf, -1)

    def take(self, items: Tensor) -> None:
        self.taken.append(items)

    def some(self, rows: Tensor) -> Tensor:
        return self._query().on_rows(rows, self._scores(rows))

    def of(self, items: Tensor, rows: Tensor | None = None) -> Tensor:
        rows = torch.arange(len(self.state.users)) if rows is None else rows
        at_once = users_at_once(len(self.one_class))
        parts = [
            self.some(some).gather(1, theirs)
            for some, theirs in zip(rows.split(at_once), items.split(at_once), strict=True)
        ]
        return torch.cat(parts)

    def blocks(self, also: Tensor | None = None) -> Iterator[Tensor]:
        everybody = torch.arange(len(self.state.users))
        for rows in everybody.split(users_at_once(len(self.one_class))):
            scores = self._scores(rows)
            opened = self._query().on_rows(rows, scores)
            if also is not None:
                users, places = (also[rows] >= 0).nonzero(as_tuple=True)
                at = users, also[rows][users, places]
                opened[at] = scores[at]
            yield opened

    def tensors(self) -> dict[str, Tensor]:
        return {f"shortlists.{name}": tensor for name, tensor in self.lists.tensors().items()}

    def _query(self) -> Query:
        taken = torch.stack(self.taken, dim=1) if self.taken else None
        return Query(self.one_class, 1, self.state.blocked_sets, taken=taken)

    def _scores(self, rows: Tensor) -> Tensor:
        return self.ranker.scores(self.state.users[rows], self.state.queue[rows])

    def _lasting(self, rows: Tensor) -> Tensor:
        return self._scores(rows).masked_fill(self.state.blocked_for_good(rows), -torch.inf)
