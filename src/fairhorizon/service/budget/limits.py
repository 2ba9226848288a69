"""Limits as the service keeps them: what is asked, of which groups, in which window."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fairhorizon.allocation.limit_matrix import GroupRule
from fairhorizon.errors import ConfigError
from fairhorizon.limits.bound import BoundLimit
from fairhorizon.limits.language import Limit
from fairhorizon.limits.limit_rules import rule_of
from fairhorizon.service.budget.units import place_units, share_units
from fairhorizon.service.budget.windows import Window
from fairhorizon.service.vocabulary import Counts
from fairhorizon.vocabulary import Labels, Scope


@dataclass(frozen=True, eq=False)
class ServedLimit:
    """One limit; COLUMN:each is a limit for every value, with one window for all of them."""

    id: int
    limit: Limit
    window: Window
    counts: Counts
    slack: int  # C, in units
    groups: tuple[BoundLimit, ...]

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
            GroupRule(rule_of(one.limit), bound.members, str(bound))
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


def flat(limits: Sequence[ServedLimit]) -> Rules:
    return Rules(tuple(limits))
