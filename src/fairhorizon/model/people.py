"""What people have taken: those of the log, with what was observed since, and others by history."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.data.interactions import Interactions
from fairhorizon.model.observed import ObservedRows

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


def stranger(key: Any, items: Sequence[int] | Codes) -> Person:
    """Somebody who is not in the log, by history; an item that is repeated counts once."""
    return Person(key, -1, np.array(list(dict.fromkeys(items)), dtype=np.int64))
