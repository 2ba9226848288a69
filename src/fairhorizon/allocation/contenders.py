"""The items of each request that its list can need, whatever the price and the room are."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.exchange import Floats, exchange_gains
from fairhorizon.allocation.guard_file import LARGEST
from fairhorizon.errors import DataError

Counts = NDArray[np.int64]

REMEDY = "give finite values, and -inf to what may not be shown"


@dataclass(frozen=True)
class Contenders:
    """The best `length` of either side for every request: no list ever needs another item.

    The first side is outside the group, the second is the group; best first, ties in given order.
    """

    items: Counts  # (b, width + 1) by value, then -1
    places: Counts  # (b, 2, length) where they are among the items; width where there is none
    values: Floats  # (b, 2, length) -inf where there is none
    counts: list[list[int]]  # (b, 2)
    gains: Floats  # (b, length) of the group's places in lists as long as the items allow
    spread: list[float]  # (b,) mean absolute deviation of the values; nan for fewer than two

    def wanted(self, row: int, size: int, price: float) -> int:
        """How many of the best `size` items by value - price * [in the group] are of the group.

        Its c-th best is among them if the exchange gains more than the price.
        """
        gains = self.gains[row]
        if size < min(sum(self.counts[row]), len(gains)):
            others, members = self.values[row, :, None]
            gains = exchange_gains(members, others, np.array([size]))[0]
        return int((gains > price).sum())

    def lists(self, sizes: list[tuple[int, int]]) -> Counts:
        """(b, length) so many of either side, in the order of value, then -1."""
        b, _, length = self.places.shape
        shown = np.arange(length) < np.array(sizes, dtype=np.int64).reshape(b, 2, 1)
        nowhere = self.items.shape[1] - 1
        places = np.where(shown, self.places, nowhere).reshape(b, 2 * length)
        return np.take_along_axis(self.items, np.sort(places, axis=1)[:, :length], axis=1)

    def by_place(self, of_group: NDArray[np.bool_], sizes: Counts) -> Counts:
        """(b, length) at every place the next of the group (b, length) or of the others."""
        length = of_group.shape[1]
        number, places = of_group.cumsum(1), np.arange(length)
        rank = np.where(of_group, number - 1, places - number)
        row = np.arange(len(of_group))[:, None]
        chosen = self.places[row, of_group.astype(np.int64), rank]
        return np.where(places < sizes[:, None], self.items[row, chosen], -1)


def contenders_of(items: Tensor, values: Tensor, group: Tensor, length: int) -> Contenders:
    """Of candidates (b, C) those that a list may need."""
    needed = _needed(items, values, group, length)
    rows, columns = needed.nonzero(as_tuple=True)
    b, row, column = len(items), rows.numpy(), columns.numpy()
    value = values[rows, columns].double().numpy()
    order = np.lexsort((column, -value, row))  # by request, then value, then in the order given
    row, value, label = row[order], value[order], group[rows, columns].numpy()[order]
    place = _position_in_run(row)
    width = int(place.max(initial=-1)) + 1
    by_value = np.full((b, width + 1), -1)
    by_value[row, place] = items[rows, columns].numpy()[order]
    places = np.full((b, 2, length), width)
    best = np.full((b, 2, length), -np.inf)
    for side in (0, 1):
        here = (label == side).nonzero()[0]
        rank = _position_in_run(row[here])
        here, rank = here[rank < length], rank[rank < length]  # more only where there are ties
        places[row[here], side, rank] = place[here]
        best[row[here], side, rank] = value[here]
    present = places < width
    spread = _deviation(best.reshape(b, 2 * length), present.reshape(b, 2 * length))
    counts = present.sum(2)
    gains = exchange_gains(best[:, 1], best[:, 0], counts.sum(1).clip(max=length))
    return Contenders(by_value, places, best, counts.tolist(), gains, spread.tolist())


def _needed(items: Tensor, values: Tensor, group: Tensor, length: int) -> Tensor:
    """(b, C) bool: may be shown, and no worse than the `length`-th best of its side."""
    showable = (values != -torch.inf) & (items >= 0)
    if not (values[showable].abs() <= LARGEST).all():
        raise DataError("the value of a candidate is nan or more than 1e300", remedy=REMEDY)
    kept = min(length, items.shape[1])
    if kept == 0:
        return torch.zeros_like(showable)
    least = torch.empty_like(values)
    for side in (group, ~group):
        ranked = torch.where(showable & side, values, -torch.inf).topk(kept, dim=1).values
        least = torch.where(side, ranked[:, -1:], least)
    return showable & (values >= least)


def _position_in_run(sorted_rows: Counts) -> Counts:
    """0, 1, 2, ... within every run of equal numbers."""
    return np.arange(len(sorted_rows)) - np.searchsorted(sorted_rows, sorted_rows)


def _deviation(values: Floats, present: NDArray[np.bool_]) -> Floats:
    """(b,) mean absolute deviation from the mean of those present; nan for fewer than two."""
    count = present.sum(1)
    several = np.maximum(count, 1)
    mean = np.where(present, values, 0.0).sum(1) / several
    deviations = np.abs(np.where(present, values, mean[:, None]) - mean[:, None])
    return np.where(count > 1, deviations.sum(1) / several, np.nan)
