"""The scores of a ranker for all users of a long run."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import first_best, users_at_once
from fairhorizon.simulation.dynamics import State


class UserScores:
    """Scores of what may be shown now, -inf for all else.

    stored: scores (b, n_items) as another run stored them; computed unless given.
    """

    def __init__(self, ranker: Ranker[Any], state: State, stored: Tensor | None = None) -> None:
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
        """Users are in this state; what returns in it may be shown again."""
        if state.returning:
            self.open = self._with(self.open, state.returning[0])

    def renew(self, state: State, rows: Tensor) -> None:
        """Score these users by their present histories."""
        for some in rows.split(users_at_once(state.blocked_sets.shape[1])):
            scores = self.ranker.scores(state.users[some], state.queue[some])
            if self.all is not None:
                self.all[some] = scores
            self.open[some] = scores.masked_fill(state.blocked_sets.mask(some), -torch.inf)

    def best(self) -> Tensor:
        """(b,) each user's best item, -1 where nothing is left."""
        return first_best(self.open)

    def take(self, items: Tensor) -> None:
        """Items (b,) that were just shown may not be shown again in this step, -1 for none."""
        rows = (items >= 0).nonzero().squeeze(1)
        self.open[rows, items[rows]] = -torch.inf

    def some(self, rows: Tensor) -> Tensor:
        """(len(rows), n_items) of some users."""
        return self.open[rows]

    def of(self, items: Tensor, rows: Tensor | None = None) -> Tensor:
        """(b, c) of these items (b, c) of all users, or of some."""
        return (self.open if rows is None else self.open[rows]).gather(1, items)

    def blocks(self, also: Tensor | None = None) -> Iterator[Tensor]:
        """(some, n_items) of all users in order, a block at a time.

        also: (b, m) items that count as open, -1 for none.
        """
        scores = self.open if also is None else self._with(self.open.clone(), also)
        yield from scores.split(users_at_once(scores.shape[1]))

    def tensors(self) -> dict[str, Tensor]:
        """What cannot be computed again to the last digit."""
        # computed in other batches, they would differ in the last digits
        return {"scores": self.open if self.all is None else self.all}

    def _with(self, scores: Tensor, items: Tensor) -> Tensor:
        """Scores that have those of these items (b, m) again, -1 for none; changed in place."""
        assert self.all is not None
        rows, places = (items >= 0).nonzero(as_tuple=True)
        at = rows, items[rows, places]
        scores[at] = self.all[at]
        return scores
