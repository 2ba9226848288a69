"""A limit on exposure that holds after every single request, whatever comes next.

    sensitive <= share * shown        at every moment, each showing under the label of its moment

Both sides count showings alike or by place, as the rule says (place_rule.py). A rule on every list
is kept by each list alone.

A list holds the best items by value - price * [in the group]. The price follows the demand of the
lists (an online dual), so that the budget goes to the requests that gain the most by it; a hard
cap gives the guarantee. docs/guarantee.md has the proofs.
"""

import math
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.contenders import Contenders, Counts, contenders_of
from fairhorizon.allocation.guard_file import LARGEST, StoredGuard, read_guard
from fairhorizon.allocation.guarded_places import PlacesOfRequests
from fairhorizon.errors import ConfigError
from fairhorizon.exposure.place_rule import PlaceRule
from fairhorizon.files import write_text
from fairhorizon.metrics.shares import whole_showings
from fairhorizon.ranking import some_at_a_time
from fairhorizon.vocabulary import Scope

MEMORY = 1000  # requests that the spread of values is averaged over
_LOCK = type(Lock())


class ExposureGuard:
    """Serves one request after the other; after each, group showings <= share * all showings.

    rule: the share of the limit, or a rule that is a floor, counts by place or holds in every list
    price: initial price of a showing of the group, in units of the values
    step: how fast the price moves, without a unit: at a share of 0, a list wholly of the group
        raises the price by `step` spreads of the values
    shown, sensitive: showings so far, and those of the group among them, weighed as the rule does.
        If these start above the share, nothing of the group is shown until the share is kept.

    All methods may be called from several threads. Candidates are prepared in parallel; a request
    is decided and counted under a lock, before the next one is decided.
    """

    def __init__(
        self,
        rule: PlaceRule | float,
        *,
        price: float = 0.0,
        step: float = 0.1,
        shown: float = 0,
        sensitive: float = 0,
    ) -> None:
        for name, number in (("price", price), ("step", step)):
            if not 0 <= number <= LARGEST:
                raise ConfigError(f"a {name} of {number} (take a number, 0 or above)")
        if not 0 <= sensitive <= shown:
            raise ConfigError(
                f"{sensitive} showings of the group among {shown} in all"
                " (give both as counted so far)"
            )
        self.rule = rule if isinstance(rule, PlaceRule) else PlaceRule(float(rule))
        self.step, self.price = float(step), float(price)
        self.shown, self.sensitive = _count(shown), _count(sensitive)
        self.spread = 0.0  # running mean over requests, in units of the values
        self.requests = 0
        self._make_locks()

    @property
    def share(self) -> float:
        """The largest share of the group; of a floor, the smallest."""
        return self.rule.share

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
            state = self._snapshot().model_dump_json(indent=2, exclude_none=True)
            write_text(Path(path), state + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "ExposureGuard":
        """The guard that was saved here; it continues as if it had never stopped."""
        state = read_guard(Path(path))
        guard = cls(state.rule or state.share, price=state.price, step=state.step)
        guard.shown, guard.sensitive = state.shown, state.sensitive
        guard.spread, guard.requests = state.spread, state.requests
        return guard

    def tensors(self) -> dict[str, Tensor]:
        """The state that later requests depend on, as it is between two requests."""
        state = self._snapshot()
        counts = {"shown": state.shown, "sensitive": state.sensitive, "requests": state.requests}
        levels = {"price": state.price, "spread": state.spread}
        whole = {name: count for name, count in counts.items() if isinstance(count, int)}
        return {name: torch.tensor(count) for name, count in whole.items()} | {
            name: torch.tensor(level, dtype=torch.float64)
            for name, level in (counts | levels).items()
            if name not in whole
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from the tensors of another guard; rule and step stay those of this one."""
        shown, sensitive = (_count(tensors[name].item()) for name in ("shown", "sensitive"))
        requests = int(tensors["requests"])
        price, spread = (float(tensors[name]) for name in ("price", "spread"))
        with self._deciding:
            self.shown, self.sensitive, self.requests = shown, sensitive, requests
            self.price, self.spread = price, spread

    def _snapshot(self) -> StoredGuard:
        with self._deciding:
            return StoredGuard(
                share=self.share,
                rule=None if self.rule == PlaceRule(self.share) else self.rule,
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
        limited = ~group if self.rule.is_floor else group
        contenders = contenders_of(items.cpu(), values.cpu(), limited.cpu(), length)
        if length == 0 or self._limit.is_plain(length):
            sizes = [self._serve_one(contenders, row, length) for row in range(len(items))]
            lists = contenders.lists(sizes)
        else:
            lists = self._serve_by_place(contenders, length)
        return torch.from_numpy(lists).to(items)

    @property
    def _limit(self) -> PlaceRule:
        """The rule as a limit: a floor is one on all items outside the group."""
        return self.rule.mirrored() if self.rule.is_floor else self.rule

    @property
    def _limited(self) -> float:
        """The showings that the limit is on."""
        return self.shown - self.sensitive if self.rule.is_floor else self.sensitive

    def _add(self, shown: float, limited: float) -> None:
        self.shown += shown
        self.sensitive += shown - limited if self.rule.is_floor else limited

    def _serve_one(self, contenders: Contenders, row: int, length: int) -> tuple[int, int]:
        """How many of either side this request is shown; counts them and updates the price."""
        others, members = contenders.counts[row]
        with self._deciding:  # two requests that saw the same counts could spend the room twice
            size, most = self._longest(others, members, length)
            if size == 0:
                return 0, 0
            wanted = contenders.wanted(row, size, self.price)
            granted = min(wanted, most)
            self._learn(contenders.spread[row], (wanted - self._limit.share * size) / length)
            self._add(size, granted)
        return size - granted, granted

    def _serve_by_place(self, contenders: Contenders, length: int) -> Counts:
        """The same by place, or with caps in every list."""
        requests = PlacesOfRequests(self._limit, contenders, length)
        if self.rule.scope != Scope.ALL:
            of_group, sizes = requests.each_by_itself()
            with self._deciding:
                self._add(int(sizes.sum()), int(of_group.sum()))
            return contenders.by_place(of_group, sizes)
        of_group = np.zeros((len(contenders.counts), length), dtype=np.bool_)
        sizes = np.zeros(len(of_group), dtype=np.int64)
        for row in range(len(of_group)):
            with self._deciding:
                budget = self._limit.share * self.shown - self._limited
                chosen = requests.best(row, budget, self.price)
                if chosen.size:
                    self._learn(contenders.spread[row], chosen.excess)
                    self._add(chosen.shown, chosen.limited)
            of_group[row], sizes[row] = chosen.of_group, chosen.size
        return contenders.by_place(of_group, sizes)

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
        # lists of one place may follow longer ones, so that counts by place are no whole numbers
        return max(0, whole_showings(self._limit.share * (self.shown + size) - self._limited))

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


def _count(showings: float) -> float:
    """A whole number where it is one, so that it stays exact and prints as one."""
    return int(showings) if showings == int(showings) else float(showings)
