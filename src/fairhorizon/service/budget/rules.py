"""Limits as the service counts them: in whole units, in windows, and over all their groups.

Exposure is counted in millionths of a showing, so that counts of replicas add up without any
rounding.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairhorizon.allocation.limit_matrix import GroupRule
from fairhorizon.errors import ConfigError
from fairhorizon.limits.language import Limit
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.service.settings import Counts
from fairhorizon.vocabulary import Labels, Scope

UNIT = 1_000_000  # one showing that counts 1
ALWAYS, DAY = "always", "day"
COUNT = re.compile(r"(\d{1,12}) showings")


@lru_cache(maxsize=1024)
def place_units(limit: Limit, length: int) -> tuple[int, ...]:
    """What a showing at each place of a list counts under a limit."""
    return tuple(
        round(UNIT * weight)
        for weight in PlaceRule.from_limit(limit).place_weights(length).tolist()
    )


def share_units(limit: Limit) -> int:
    """The share of a limit in millionths; of more digits it is the stricter of the two next."""
    exact = UNIT * limit.share
    near = round(exact)
    # A share such as 0.29 is a little less than 290,000 millionths in floats.
    if abs(exact - near) < 1e-6:
        return near
    return int(exact) + limit.is_floor


Total = TypeVar("Total", int, NDArray[np.int64])


def part_of(share: int, total: Total) -> Total:
    """share * total // UNIT, whose product would not fit 64 bits after some million showings."""
    return share * (total // UNIT) + share * (total % UNIT) // UNIT


def allowed(share: int, shown: int, slack: int) -> int:
    """share * shown + C, rounded down: how much of a group may have been shown."""
    return part_of(share, shown) + slack


def showings(units: int) -> float:
    """As people count them."""
    return units / UNIT


@dataclass(frozen=True)
class Window:
    """When a limit begins to count anew: never, every day (UTC), or after `showings`."""

    daily: bool = False
    showings: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Window":
        """`always`, `day` or `10000 showings`."""
        words = " ".join(text.strip().lower().split())
        if words == ALWAYS:
            return cls()
        if words == DAY:
            return cls(daily=True)
        counted = COUNT.fullmatch(words)
        if counted is None or not int(counted[1]):
            raise ConfigError(
                f"window {text!r}: when should it begin anew? (give always, day or 10000 showings)"
            )
        return cls(showings=int(counted[1]))

    def __str__(self) -> str:
        if self.showings is not None:
            return f"{self.showings} showings"
        return DAY if self.daily else ALWAYS

    def name(self, now: float, before: str | None, shown: int) -> str:
        """What the window of this moment is called.

        now: by the database's clock.  before: the name of the last one; None: there was none.
        shown: units counted in that one. A window of showings ends with the lists that fill it.
        """
        if self.daily:
            return datetime.fromtimestamp(now, UTC).date().isoformat()
        if self.showings is None:
            return ALWAYS
        if before is None:
            return "1"
        # Windows of showings are numbered.
        return str(int(before) + (shown >= self.showings * UNIT))


@dataclass(frozen=True, eq=False)
class ServedLimit:
    """One limit; COLUMN:each is a limit for every value, with one window for all of them."""

    id: int
    limit: Limit
    window: Window
    counts: Counts
    slack: int  # C, in units
    groups: tuple[ResolvedLimit, ...]

    @property
    def is_hard(self) -> bool:
        """Whether it is kept in fact; a floor is only steered by its price."""
        return not self.limit.is_floor

    @cached_property
    def share(self) -> int:
        """In millionths."""
        return share_units(self.limit)

    def weights(self, length: int) -> tuple[int, ...]:
        """Units of a showing at each place."""
        return place_units(self.limit, length)


@dataclass(frozen=True, eq=False)
class Rules:
    """All groups of all limits in one row, as allocations take them."""

    limits: tuple[ServedLimit, ...]

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """(m,) the limit that each group is of."""
        return np.repeat(np.arange(len(self.limits)), [len(one.groups) for one in self.limits])

    @cached_property
    def group_rules(self) -> tuple[GroupRule, ...]:
        return tuple(
            GroupRule(PlaceRule.from_limit(one.limit), bound.members, str(bound))
            for one in self.limits
            for bound in one.groups
        )

    @cached_property
    def members(self) -> NDArray[np.bool_]:
        """(m, n_items)"""
        return np.stack([rule.members for rule in self.group_rules])

    @cached_property
    def hard(self) -> NDArray[np.bool_]:
        """(m,)"""
        return np.array([one.is_hard for one in self.limits], dtype=np.bool_)[self.owners]

    def __len__(self) -> int:
        return len(self.owners)

    def slices(self) -> list[slice]:
        """Where the groups of each limit are."""
        ends = np.cumsum([len(one.groups) for one in self.limits]).tolist()
        return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


def check_served(limit: Limit) -> None:
    """Refuse what a service cannot keep over requests of many replicas."""
    if limit.is_gini:
        raise ConfigError(f"{limit}: the service limits groups of items (give a group)")
    if limit.scope is not Scope.ALL:
        raise ConfigError(f"{limit}: the service counts all showings (leave out its scope)")
    if limit.labels not in (None, Labels.MOMENT):
        raise ConfigError(
            f"{limit}: a showing counts under the label of its epoch (leave out labels)"
        )
