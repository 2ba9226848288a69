"""The scores of all users at one slot of their lists, as the control asks for them.

A table of users x items answers directly. Where that is too large, `shortlists.py` does.
"""

from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.item_classes import (
    Classes,
    Floats,
    ItemClasses,
    best_of_classes,
    without,
)
from fairhorizon.ranking import first_highest

CELLS = 2**22  # scores looked at together


class LeftScores(Interface):
    """What is left of the scores of a slot: less a handicap, and without items that are taken."""

    def best_of_classes(self, classes: ItemClasses, full: Tensor | None) -> tuple[Tensor, Tensor]:
        """(b, C) the highest score of each class and its item, as `item_classes` has it.

        With `full` (n_items,) bool, without these items, and for every class.
        """

    def best(
        self, users: Classes, own: Classes, classes: ItemClasses, closed: Tensor
    ) -> tuple[Floats, Classes]:
        """The best item of one class for each of some users that is not closed (n_items,)."""


class SlotScores(Interface):
    """Scores of all users, -inf for what may not be shown."""

    @property
    def empty(self) -> Tensor:
        """Of no size, for device and type."""

    def __len__(self) -> int:
        """Users."""

    def rows(self, users: Tensor) -> Tensor:
        """(len(users), n_items) of some users."""

    def left(self, handicap: Tensor, taken: Tensor) -> LeftScores:
        """Less a handicap (n_items,), and without items taken (b, k), -1 for none."""


@dataclass(frozen=True)
class TableScores:
    """Scores as a table."""

    table: Tensor  # (b, n_items)

    @property
    def empty(self) -> Tensor:
        return self.table[:0, :0]

    def __len__(self) -> int:
        return len(self.table)

    def rows(self, users: Tensor) -> Tensor:
        return self.table[users]

    def left(self, handicap: Tensor, taken: Tensor) -> "TableLeft":
        return TableLeft(self.table.detach(), handicap, taken)


class TableLeft:
    """What is left of a table of scores."""

    def __init__(self, table: Tensor, handicap: Tensor, taken: Tensor) -> None:
        self.table, self.handicap, self.taken = table, handicap, taken

    def best_of_classes(self, classes: ItemClasses, full: Tensor | None) -> tuple[Tensor, Tensor]:
        if full is None:
            return best_of_classes(self.table, self.handicap, classes, self.taken)
        left = self._settled()
        no_handicap, none_taken = torch.zeros_like(self.handicap), self.taken[:, :0]
        open_scores = left.masked_fill(full, -torch.inf)
        return best_of_classes(open_scores, no_handicap, classes.each_in_question(), none_taken)

    def best(
        self, users: Classes, own: Classes, classes: ItemClasses, closed: Tensor
    ) -> tuple[Floats, Classes]:
        table = self._settled()
        values, items = np.zeros(len(users)), np.zeros(len(users), dtype=np.int64)
        for c in np.unique(own):
            of, bar = np.flatnonzero(own == c), table.new_zeros(classes.n_items)
            bar[closed | (classes.of_item != c)] = -torch.inf
            for at in np.array_split(of, 1 + len(of) * table.shape[1] // CELLS):
                rest = table[torch.from_numpy(users[at]).to(bar.device)].add_(bar)
                best = first_highest(rest)
                values[at] = rest.gather(1, best[:, None])[:, 0].double().cpu().numpy()
                items[at] = best.cpu().numpy()
        return values, items

    def _settled(self) -> Tensor:
        """The table with handicap and without what is taken, from now on."""
        if self.handicap.any():
            self.table = self.table - self.handicap
            self.handicap = torch.zeros_like(self.handicap)
        if self.taken.shape[1]:
            self.table = without(self.table, self.taken)
            self.taken = self.taken[:, :0]
        return self.table
