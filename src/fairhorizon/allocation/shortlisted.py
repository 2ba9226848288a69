"""Scores of a slot from shortlists, as the control asks for them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.item_classes import Classes, Floats, ItemClasses, Query
from fairhorizon.allocation.shortlists import SCORES_AT_ONCE, ClassShortlists
from fairhorizon.allocation.slot_scores import TableLeft
from fairhorizon.errors import ModelError
from fairhorizon.histories import ItemSets
from fairhorizon.ranking import rows_at_once


@dataclass(frozen=True)
class ShortlistedScores:
    """The scores of users in their present state."""

    lists: ClassShortlists
    blocked: ItemSets

    @property
    def empty(self) -> Tensor:
        return self.lists.scores[:0, :0]

    def __len__(self) -> int:
        return self.lists.shape[0]

    def rows(self, users: Tensor) -> Tensor:
        scores = self.lists.score(users)
        return scores.masked_fill(self.blocked.mask(users), -torch.inf)

    def left(self, handicap: Tensor, taken: Tensor) -> "ShortlistedLeft | RowsLeft":
        if handicap.any():  # it changes which items are the best
            return RowsLeft(self, handicap, taken)
        return ShortlistedLeft(self, taken)


@dataclass(frozen=True)
class ShortlistedLeft:
    """What is left of them without items that are taken."""

    scores: ShortlistedScores
    taken: Tensor  # (b, k)

    def best_of_classes(self, classes: ItemClasses, full: Tensor | None) -> tuple[Tensor, Tensor]:
        query = Query.of(classes, self.scores.blocked, full, self.taken)
        if full is None:
            values, items = self.scores.lists.best_in_question(query, classes.cheaper)
        else:
            values, items = self.scores.lists.best(query)
        return _numbers(values[:, :, 0]), items[:, :, 0]

    def best(
        self, users: Classes, own: Classes, classes: ItemClasses, closed: Tensor
    ) -> tuple[Floats, Classes]:
        query = Query.of(classes, self.scores.blocked, closed, self.taken)
        rows, kinds = torch.from_numpy(users), torch.from_numpy(own)
        values, items = self.scores.lists.best_of_own(query, rows, kinds)
        return values.double().numpy(), items.numpy()


@dataclass(frozen=True)
class RowsLeft:
    """What is left of them less a handicap: whole rows of scores, a block of users at a time."""

    scores: ShortlistedScores
    handicap: Tensor  # (n_items,)
    taken: Tensor

    def best_of_classes(self, classes: ItemClasses, full: Tensor | None) -> tuple[Tensor, Tensor]:
        everybody = torch.arange(len(self.scores))
        at_once = rows_at_once(self.scores.lists.shape[1], SCORES_AT_ONCE)
        parts = [self._of(rows).best_of_classes(classes, full) for rows in everybody.split(at_once)]
        values, items = zip(*parts, strict=True)
        return torch.cat(values), torch.cat(items)

    def best(
        self, users: Classes, own: Classes, classes: ItemClasses, closed: Tensor
    ) -> tuple[Floats, Classes]:
        values, items = np.zeros(len(users)), np.zeros(len(users), dtype=np.int64)
        at_once = rows_at_once(self.scores.lists.shape[1], SCORES_AT_ONCE)
        for first in range(0, len(users), at_once):
            some = slice(first, first + at_once)
            left = self._of(torch.from_numpy(users[some]))
            places = np.arange(len(users[some]))
            values[some], items[some] = left.best(places, own[some], classes, closed)
        return values, items

    def _of(self, rows: Tensor) -> TableLeft:
        return TableLeft(self.scores.rows(rows), self.handicap, self.taken[rows])


def _numbers(values: Tensor) -> Tensor:
    if values.isnan().any():
        raise ModelError("a score is not a number: the model that scores has diverged")
    return values
