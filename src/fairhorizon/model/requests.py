"""A request as the scenario that recommenders read: histories, and what may not be shown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.model.people import Codes, People, Person
from fairhorizon.simulation.feedback import Scenario

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
