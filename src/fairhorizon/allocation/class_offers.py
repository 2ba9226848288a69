"""What each user could be shown in a step, and who is shown an item that has room for few.

A limit under retrospective labels lets an item be shown in a step only so often that it does not
enter the group. Users choose their items under the budgets of the step (class_program.py). Where
more of them choose an item than it has room for, those keep it whose next best item is the furthest
behind; the others choose again, among the items that are not full. So this ends after a few rounds.
Where all items of a class are full, one of them is the last resort: it may enter the group, while
an item of another class might break a budget at once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.class_program import Classes, Floats, allocate
from fairhorizon.allocation.item_classes import ItemClasses
from fairhorizon.allocation.slot_scores import LeftScores, SlotScores
from fairhorizon.exposure.counts import Counts

CLOSED = 1e4  # the price of an item without any room: more than scores differ by


@dataclass(frozen=True)
class Allocation:
    """What each user is shown."""

    choice: Classes  # (b,) the class
    items: Classes  # (b,)
    prices: Floats  # (m,) of the budgets
    item_prices: Floats  # (n_items,) of room: the largest loss of a user who was refused


class ClassOffers:
    """Each user's best item of each class; with `left`, also what comes after it."""

    def __init__(
        self, values: Tensor, items: Tensor, classes: ItemClasses, left: LeftScores | None = None
    ) -> None:
        self.values: Floats = values.double().cpu().numpy()  # (b, C)
        self.items: Classes = items.cpu().numpy()
        self.classes, self.left = classes, left
        # (n_items,) who did not get one of these before is not offered it again
        self._full = torch.zeros_like(classes.of_item, dtype=torch.bool)
        self._last = np.zeros(self.values.shape, dtype=np.bool_)  # offers of what is full

    @classmethod
    def of(
        cls, scores: SlotScores, handicap: Tensor, classes: ItemClasses, taken: Tensor
    ) -> "ClassOffers":
        """From the scores of a slot less a handicap (n_items,), without items taken (b, k)."""
        return cls(*scores.left(handicap, taken).best_of_classes(classes, None), classes)

    @classmethod
    def with_room(
        cls,
        scores: SlotScores,
        handicap: Tensor,
        classes: ItemClasses,
        taken: Tensor,
        room: Counts,
    ) -> "ClassOffers":
        """The same; items that have no room are offered where a class has no others."""
        full = torch.from_numpy(room <= 0).to(handicap.device)
        left = scores.left(handicap, taken)
        offers = cls(*left.best_of_classes(classes, full), classes, left)
        offers._full = full
        users, own = np.nonzero(offers.values == -np.inf)
        offers._offer((users, own), *offers._last_resort(users, own), last=True)
        return offers

    def bar(self, barred: NDArray[np.bool_] | None) -> None:
        """Take back the offers of some classes (b, C), but not all of a user's."""
        if barred is not None:
            left = np.where(barred, -np.inf, self.values)
            self.values = np.where(left.max(1, keepdims=True) > -np.inf, left, self.values)

    def rows_left(self) -> NDArray[np.int64]:
        """The users who have something left to be shown."""
        rows: NDArray[np.int64] = np.flatnonzero(self.values.max(1) > -np.inf)
        return rows

    def allocate(
        self, rows: NDArray[np.int64], costs: Floats, budgets: Floats, room: Counts | None
    ) -> Allocation:
        """As `class_program.allocate`, and no item is shown more often than it has room for, but
        as a last resort."""
        item_prices: Floats = np.zeros(self.classes.n_items)
        while True:
            choice, prices = allocate(self.values[rows], costs, budgets)
            items = self.items[rows, choice]
            if room is None:
                return Allocation(choice, items, prices, item_prices)
            counted = ~self._last[rows, choice]
            crowded = np.bincount(items[counted], minlength=len(room)) > room
            self._full |= torch.from_numpy(crowded).to(self._full)
            some = np.flatnonzero(crowded[items] & counted)
            users, own = rows[some], choice[some]
            values, following, last = self._second(users, own)
            loss = self._loss(users, own, values, prices @ costs)
            refused = _least_loss(items[some], loss, room)
            if not len(refused):
                return Allocation(choice, items, prices, item_prices)
            np.maximum.at(item_prices, items[some[refused]], loss[refused])
            who = users[refused], own[refused]
            self._offer(who, values[refused], following[refused], last=last[refused])

    def _offer(
        self,
        who: tuple[Classes, Classes],
        values: Floats,
        items: Classes,
        *,
        last: NDArray[np.bool_] | bool,
    ) -> None:
        """To some users, of some classes."""
        self.values[who], self.items[who], self._last[who] = values, items, last

    def _loss(self, users: Classes, own: Classes, second: Floats, charges: Floats) -> Floats:
        """(b,) by how much the next best offer is behind, all less the charge of its class."""
        net, at = self.values[users] - charges, np.arange(len(users))
        present = net[at, own]
        net[at, own] = second - charges[own]
        loss: Floats = present - net.max(1, initial=-np.inf)
        return loss

    def _second(self, users: Classes, own: Classes) -> tuple[Floats, Classes, NDArray[np.bool_]]:
        """What comes after the best item of these classes, which is full; and if that is full."""
        values, items = self._best(users, own, self._full)
        last = values == -np.inf
        values[last], items[last] = self._last_resort(users[last], own[last])
        return values, items, last

    def _last_resort(self, users: Classes, own: Classes) -> tuple[Floats, Classes]:
        """The best item of these classes, full or not, far behind all others; -inf for nothing."""
        values, items = self._best(users, own, torch.zeros_like(self._full))
        return values - CLOSED, items

    def _best(self, users: Classes, own: Classes, closed: Tensor) -> tuple[Floats, Classes]:
        """Of some classes, each user's best item that is not closed (n_items,)."""
        assert self.left is not None
        return self.left.best(users, own, self.classes, closed)


def _least_loss(items: Classes, loss: Floats, room: Counts) -> Classes:
    """Who is refused: of the users of each item, all but the `room` with the largest loss."""
    order = np.lexsort((-loss, items))
    ordered = items[order]
    rank = np.arange(len(items)) - np.searchsorted(ordered, ordered)
    beyond = order[rank >= room[ordered]]
    refused: Classes = beyond[np.isfinite(loss[beyond])]
    return refused
