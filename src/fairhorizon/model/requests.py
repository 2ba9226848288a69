"""Who asks for a list and for what, as the scenario that recommenders read."""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.model.observe import ObservedRows
from fairhorizon.simulation.feedback import Scenario

Codes = NDArray[np.int64]
Times = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Person:
    """Somebody who asks for a list."""

    id: Any
    code: int  # of the user in the log that the model was fitted on; -1: not in it
    items: Codes  # (n,) taken so far, in time order
    times: Times | None = None  # (n,) when each was taken last


class People:
    """The users of a log and what they have taken; `observe` adds to it."""

    def __init__(self, log: Interactions) -> None:
        self.log = log  # ties in the order that the model was fitted on
        self._indptr, self._items = log.by_user()
        self._times: Times | None = None
        times = log.timestamps if log.last_times is None else log.last_times
        if times is not None:
            order = np.argsort(log.users, kind="stable")
            self._times = times[order].astype(np.float64)
        self._codes = {str(one): code for code, one in enumerate(log.user_ids.tolist())}
        self._since: dict[str, Person] = {}  # who was observed since the fit
        self.last_time = float(self._times.max()) if self._times is not None else 0.0

    @property
    def ids(self) -> list[Any]:
        """Of everybody, in the order of the log; then those who are new."""
        known = self.log.user_ids.tolist()
        return [*known, *(one.id for key, one in self._since.items() if key not in self._codes)]

    def find(self, user: Any) -> Person | None:
        """Somebody by id; None if nobody has it."""
        key = str(user)
        if key in self._since:
            return self._since[key]
        code = self._codes.get(key)
        if code is None:
            return None
        rows = slice(self._indptr[code], self._indptr[code + 1])
        times = None if self._times is None else self._times[rows]
        return Person(self.log.user_ids[code], code, self._items[rows], times)

    def after(self, rows: ObservedRows, codes: Mapping[str, int]) -> "People":
        """With later rows of these item codes; the present ones stay as they are."""
        people = copy.copy(self)
        people._since = dict(self._since)
        times: Sequence[float | None] = rows.times or [None] * len(rows)
        for user, item, time in zip(rows.users, rows.items, times, strict=True):
            people._add(user, codes[str(item)], time)
        return people

    def _add(self, user: Any, item: int, time: float | None) -> None:
        known = self.find(user) or Person(user, -1, np.empty(0, dtype=np.int64), np.empty(0))
        items, times = known.items, known.times
        again = np.flatnonzero(items == item)
        if len(again) and self.log.repeats == "last":
            items = np.delete(items, again)
            times = None if times is None else np.delete(times, again)
            again = again[:0]
        if len(again):  # the first stays, but it was taken again
            if times is not None and time is not None:
                times = times.copy()
                times[again] = np.maximum(times[again], time)
        else:
            items = np.append(items, item)
            times = None if times is None or time is None else np.append(times, time)
        self._since[str(user)] = Person(known.id, known.code, items, times)
        if time is not None:
            self.last_time = max(self.last_time, time)

    def most_like(self, items: Codes) -> int:
        """The user of the log with the most similar items (cosine); 0 where none shares any.

        For methods with a vector of every user: somebody new has that of the most similar one.
        """
        known = items[items < self.log.n_items]
        if not len(known):
            return 0
        shared = np.asarray(self._taken_by[known].sum(0)).ravel()
        return int((shared / np.sqrt(np.maximum(1, np.diff(self._indptr)))).argmax())

    @cached_property
    def _taken_by(self) -> csr_array:
        """(n_items, n_users): 1 where a user took an item."""
        ones = np.ones(len(self._items), dtype=np.float32)
        taken = csr_array(
            (ones, self._items, self._indptr), shape=(self.log.n_users, self.log.n_items)
        )
        return taken.T.tocsr()


def anonymous_user(key: Any, items: Sequence[int] | Codes) -> Person:
    """Somebody who is not in the log, by history; an item that is repeated counts once."""
    return Person(key, -1, np.array(list(dict.fromkeys(items)), dtype=np.int64))


DAY = 86_400.0
AFTER = re.compile(r"after\s+(\d+(?:\.\d+)?)\s+days?", re.IGNORECASE)


@dataclass(frozen=True)
class RepeatRule:
    """When an item may be shown to somebody who took it."""

    days: float | None = None  # since it was taken last; None: never. 0: at any time

    @classmethod
    def parse(cls, text: str | None) -> "RepeatRule":
        """ "no" (also None), "yes" or "after N days"."""
        if text is None or text.strip().lower() == "no":
            return cls()
        if text.strip().lower() == "yes":
            return cls(0.0)
        found = AFTER.fullmatch(text.strip())
        if found is None:
            raise ConfigError(f'repeats={text!r} (give "no", "yes" or "after 7 days")')
        return cls(float(found[1]))

    def closed(self, person: Person, now: float) -> Codes:
        """What may not be shown again."""
        if self.days is None:
            return person.items
        if self.days == 0:
            return person.items[:0]
        if person.times is None:
            if len(person.items) and person.code >= 0:
                raise ConfigError(
                    f"repeats after {self.days:g} days: the log has no times (name its column: "
                    'fh.load(..., time=...), or give repeats="yes")'
                )
            return person.items
        return person.items[person.times > now - self.days * DAY]


@dataclass(frozen=True, eq=False)
class Requests:
    """What lists are asked for."""

    persons: Sequence[Person]
    barred: NDArray[np.bool_] | None  # (n_items,) that nobody may be shown
    repeats: RepeatRule

    def scenario(self, people: People, n_items: int, queue_length: int) -> Scenario:
        """For recommenders that can show `n_items`, those of the log first."""
        closed = [self.repeats.closed(one, people.last_time) for one in self.persons]
        pointers = np.cumsum([0, *(len(items) for items in closed)])
        shut = np.concatenate([*closed, np.empty(0, dtype=np.int64)])
        nothing = UserItems(
            torch.zeros(len(self.persons) + 1, dtype=torch.int64), torch.empty(0).long(), n_items
        )
        codes = [one.code if one.code >= 0 else people.most_like(one.items) for one in self.persons]
        return Scenario(
            self._queue(people.log.n_items, queue_length),
            nothing,
            UserItems(torch.from_numpy(pointers), torch.from_numpy(shut), n_items),
            codes=torch.tensor(codes, dtype=torch.int64),
            taken=torch.tensor([len(one.items) for one in self.persons]),
            barred=None if self.barred is None else torch.from_numpy(self.barred),
        )

    def _queue(self, n_fitted: int, longest: int) -> Tensor:
        """(b, N) the most recent items that the model knows; as wide as the longest history."""
        recent = [one.items[one.items < n_fitted][-longest:] for one in self.persons]
        width = max(1, *(len(items) for items in recent))
        queue = np.full((len(recent), width), n_fitted, dtype=np.int64)
        for row, items in enumerate(recent):
            if len(items):
                queue[row, -len(items) :] = items
        return torch.from_numpy(queue)
