"""A limit on exposure that holds after every single request, whatever comes next.

    sensitive <= share * shown        at every moment, each showing under the label of its moment

A list holds the best items by value - price * [in the group]. The price follows the demand of the
lists (an online dual), so that the budget goes to the requests that gain the most by it; a hard
cap gives the guarantee. docs/guarantee.md has the proofs.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.exchange import Floats, exchange_gains
from fairhorizon.allocation.guard_file import LARGEST, StoredGuard, read_guard
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.files import write_text
from fairhorizon.metrics.shares import whole_showings
from fairhorizon.ranking import some_at_a_time

Counts = NDArray[np.int64]

MEMORY = 1000  # requests that the spread of values is averaged over
_LOCK = type(Lock())
REMEDY = "give finite values, and -inf to what may not be shown"


class ExposureGuard:
    """Serves one request after the other; after each, group showings <= share * all showings.

    price: initial price of a showing of the group, in units of the values
    step: how fast the price moves, without a unit: at a share of 0, a list wholly of the group
        raises the price by `step` spreads of the values
    shown, sensitive: showings so far, and those of the group among them. If these start above the
        share, nothing of the group is shown until the share is kept.

    All methods may be called from several threads. Candidates are prepared in parallel; a request
    is decided and counted under a lock, before the next one is decided.
    """

    def __init__(
        self,
        share: float,
        *,
        price: float = 0.0,
        step: float = 0.1,
        shown: int = 0,
        sensitive: int = 0,
    ) -> None:
        if not 0 <= share <= 1:
            raise ConfigError(f"a share of {share} is no part of all showings (take 0 to 1)")
        for name, number in (("price", price), ("step", step)):
            if not 0 <= number <= LARGEST:
                raise ConfigError(f"a {name} of {number} (take a number, 0 or above)")
        if not 0 <= sensitive <= shown:
            raise ConfigError(
                f"{sensitive} showings of the group among {shown} in all"
                " (give both as counted so far)"
            )
        self.share, self.step, self.price = float(share), float(step), float(price)
        self.shown, self.sensitive = int(shown), int(sensitive)
        self.spread = 0.0  # running mean over requests, in units of the values
        self.requests = 0
        self._make_locks()

    def _make_locks(self) -> None:
        self._deciding = Lock()  # held from reading the counts to writing them
        self._saving = Lock()  # so that an older state never replaces a newer one in a file

    def __getstate__(self) -> dict[str, Any]:
        """For copies and other processes: the state of one moment, without the locks."""
        with self._deciding:
            return {name: part for name, part in vars(self).items() if not isinstance(part, _LOCK)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_locks()

    def serve(self, items: Tensor, values: Tensor, group: Tensor, length: int) -> Tensor:
        """(length,) the list for one request, best value first; -1 where nothing may be shown.

        items (C,) different candidates, values (C,) of showing each, group (C,) bool their labels
        at this moment. A value of -inf or an item of -1 is never shown.
        """
        return self._serve_rows(items[None], values[None], group[None], length)[0]

    def serve_all(self, items: Tensor, values: Tensor, sensitive: Tensor, length: int) -> Tensor:
        """(b, length) lists for the rows of items (b, C) and values (b, C), one after the other.

        sensitive (n_items,) bool holds for all of them. The same lists as from `serve`, faster.
        Requests of other threads may come in between.
        """
        parts = [
            self._serve_rows(some, their_values, sensitive[some], length)
            for some, their_values in some_at_a_time(items, values)
        ]
        return torch.cat(parts)

    def save(self, path: str | Path) -> None:
        """Write everything that `load` needs; the file is replaced as a whole or not at all.

        It holds the state between two requests, whatever other threads serve at the same time.
        """
        with self._saving:
            write_text(Path(path), self._snapshot().model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "ExposureGuard":
        """The guard that was saved here; it continues as if it had never stopped."""
        state = read_guard(Path(path))
        guard = cls(state.share, price=state.price, step=state.step)
        guard.shown, guard.sensitive = state.shown, state.sensitive
        guard.spread, guard.requests = state.spread, state.requests
        return guard

    def tensors(self) -> dict[str, Tensor]:
        """The state that later requests depend on, as it is between two requests."""
        state = self._snapshot()
        counts = {"shown": state.shown, "sensitive": state.sensitive, "requests": state.requests}
        levels = {"price": state.price, "spread": state.spread}
        return {name: torch.tensor(count) for name, count in counts.items()} | {
            name: torch.tensor(level, dtype=torch.float64) for name, level in levels.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from the tensors of another guard; share and step stay those of this one."""
        shown, sensitive, requests = (
            int(tensors[name]) for name in ("shown", "sensitive", "requests")
        )
        price, spread = (float(tensors[name]) for name in ("price", "spread"))
        with self._deciding:
            self.shown, self.sensitive, self.requests = shown, sensitive, requests
            self.price, self.spread = price, spread

    def _snapshot(self) -> StoredGuard:
        with self._deciding:
            return StoredGuard(
                share=self.share,
                step=self.step,
                price=self.price,
                spread=self.spread,
                shown=self.shown,
                sensitive=self.sensitive,
                requests=self.requests,
            )

    @torch.no_grad()
    def _serve_rows(self, items: Tensor, values: Tensor, group: Tensor, length: int) -> Tensor:
        if length < 0:
            raise ConfigError(f"a list of {length} items (take 0 or more)")
        contenders = _contenders(items.cpu(), values.cpu(), group.cpu(), length)
        sizes = [self._serve_one(contenders, row, length) for row in range(len(items))]
        return torch.from_numpy(contenders.lists(sizes)).to(items)

    def _serve_one(self, contenders: "_Contenders", row: int, length: int) -> tuple[int, int]:
        """How many of either side this request is shown; counts them and updates the price."""
        others, members = contenders.counts[row]
        with self._deciding:  # two requests that saw the same counts could spend the room twice
            size, most = self._longest(others, members, length)
            if size == 0:
                return 0, 0
            wanted = contenders.wanted(row, size, self.price)
            granted = min(wanted, most)
            self._learn(contenders.spread[row], (wanted - self.share * size) / length)
            self.shown += size
            self.sensitive += granted
        return size - granted, granted

    def _longest(self, others: int, members: int, length: int) -> tuple[int, int]:
        """The size of the longest list that keeps the share, and how many of the group it may hold.

        A list counts towards its own budget: a longer one may hold more of the group.
        """
        for size in range(min(length, others + members), others, -1):
            most = self._room(size)
            if size - others <= most:  # the group has to fill what the others leave empty
                return size, most
        size = min(length, others)
        return size, self._room(size)

    def _room(self, size: int) -> int:
        """How many of the group a list of this size may hold."""
        budget = whole_showings(self.share * (self.shown + size))
        return max(0, budget - self.sensitive)

    def _learn(self, spread: float, excess: float) -> None:
        """Dual update: a subgradient step; excess is over the share, as a part of the list.

        It is the excess of the list before the cap. After the cap the list is within the share, so
        the price would never rise.
        """
        if not math.isnan(spread):
            self.requests += 1
            self.spread += (spread - self.spread) / min(self.requests, MEMORY)
        move = min(self.step * self.spread, LARGEST) * excess
        self.price = min(max(0.0, self.price + move), LARGEST)


@dataclass(frozen=True)
class _Contenders:
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


def _contenders(items: Tensor, values: Tensor, group: Tensor, length: int) -> _Contenders:
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
    return _Contenders(by_value, places, best, counts.tolist(), gains, spread.tolist())


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
