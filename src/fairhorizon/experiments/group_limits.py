"""Further limits of a long run: largest and smallest shares of groups, and the Gini index."""

import hashlib
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog

from fairhorizon.data.readers import read_item_attribute
from fairhorizon.data.sources import load
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.evaluation.long_term import LongRunSettings
from fairhorizon.experiments.datasets import DataSpec
from fairhorizon.exposure.groups import attribute_group
from fairhorizon.exposure.step_limits import (
    GiniLimit,
    GroupFloor,
    GroupLimit,
    PopularityLimit,
    StepLimit,
)
from fairhorizon.metrics.shares import ROUNDING


@dataclass(frozen=True)
class Bound:
    """The largest share or Gini index that a limit allows; the smallest share of a floor."""

    share: float
    is_floor: bool = False


@dataclass(frozen=True)
class GroupShare:
    """A largest share of all showings for the items with an attribute; as a floor, a smallest."""

    column: str
    values: tuple[str, ...]
    share: float
    is_floor: bool = False

    @classmethod
    def parse(cls, text: str, *, is_floor: bool = False) -> Self:
        """Of COLUMN=VALUE:SHARE; several values by commas are one group."""
        rest, _, share = text.rpartition(":")
        column, _, values = rest.partition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not column or not values or not 0 <= number <= 1:
            raise ConfigError(
                f"{text!r} (give COLUMN=VALUE:SHARE, a share from 0 to 1, as in genre=Drama:0.3)"
            )
        return cls(column, tuple(values.split(",")), number, is_floor)

    def __str__(self) -> str:
        kind = "floor" if self.is_floor else "limit"
        return f"{kind} {self.column}={','.join(self.values)}"

    def limit(self, members: NDArray[np.bool_], warm_up: int) -> StepLimit:
        of = torch.from_numpy(members)
        if self.is_floor:
            return GroupFloor(str(self), of, self.share)
        return GroupLimit(str(self), of, self.share, warm_up)


@dataclass(frozen=True)
class Limits:
    """What FCPO keeps beside the limit on popular items."""

    groups: tuple[GroupShare, ...] = ()
    gini: float | None = None
    item_table: str | None = None  # a file with a row per item; without it the log has the columns

    def __bool__(self) -> bool:
        return bool(self.groups) or self.gini is not None

    def __str__(self) -> str:
        parts = [f"{group}:{group.share:g}" for group in self.groups]
        return ", ".join([*parts, *([f"gini {self.gini:g}"] if self.gini is not None else [])])

    def bounds(self) -> dict[str, Bound]:
        """What each allows, by the name under which it is recorded."""
        bounds = {str(group): Bound(group.share, group.is_floor) for group in self.groups}
        return bounds if self.gini is None else bounds | {GiniLimit.name: Bound(self.gini)}

    def limits(
        self, data: DataSpec, cache_dir: Path | None, alpha_prime: float, warm_up: int
    ) -> list[StepLimit]:
        """The limit on popular items first."""
        return [
            PopularityLimit(alpha_prime, warm_up),
            *(
                group.limit(members, warm_up)
                for group, members in zip(self.groups, self.members(data, cache_dir), strict=True)
            ),
            *([GiniLimit(self.gini, warm_up)] if self.gini is not None else []),
        ]

    def members(self, data: DataSpec, cache_dir: Path | None) -> list[NDArray[np.bool_]]:
        """(n_items,) of every group; a DataError names a column or a value that there is not."""
        return [
            attribute_group(
                _attribute(data, self.item_table, group.column, cache_dir), group.values
            )
            for group in self.groups
        ]

    def fingerprint(self, data: DataSpec, cache_dir: Path | None) -> list[object]:
        """The same for the same limits on the same items."""
        groups = [
            [str(group), group.share, hashlib.sha256(members.tobytes()).hexdigest()[:16]]
            for group, members in zip(self.groups, self.members(data, cache_dir), strict=True)
        ]
        return [groups, self.gini]

    def check(self, data: DataSpec, cache_dir: Path | None, settings: LongRunSettings) -> None:
        """Refuse limits of groups that no showings could keep together.

        A user is shown an item once, or as often as repeats allow: a small group cannot have a
        large share of a long run.
        """
        if self.gini is not None and not 0 <= self.gini <= 1:
            raise ConfigError(f"a limit of the Gini index lies between 0 and 1, not {self.gini:g}")
        names = [str(group) for group in self.groups]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"{twice} is given twice (give it once)")
        if not self.groups:
            return
        members = np.stack(self.members(data, cache_dir))
        kinds, sizes = np.unique(members, axis=1, return_counts=True)  # items in the same groups
        sizes = sizes * settings.most_showings
        shown = min(settings.steps * settings.list_length, int(sizes.sum()))
        sign = np.array([-1.0 if group.is_floor else 1.0 for group in self.groups])
        shares = np.array([group.share for group in self.groups])
        found = linprog(
            np.zeros(len(sizes)),
            A_ub=sign[:, None] * kinds,
            b_ub=sign * shares + ROUNDING,
            A_eq=np.ones((1, len(sizes))),
            b_eq=[1.0],
            bounds=[(0.0, size / shown) for size in sizes],
        )
        if not found.success:
            raise ConfigError(
                f"{self}: no {shown} items that a user may be shown keep this (loosen a limit or "
                "lower a floor)"
            )


@lru_cache(maxsize=16)
def _attribute(
    data: DataSpec, item_table: str | None, column: str, cache_dir: Path | None
) -> NDArray[Any]:
    """(n_items,) the attribute of every item, from the table or else from the log."""
    options = {
        name: getattr(data, name)
        for name in ("user", "item", "rating", "timestamp", "header", "separator", "encoding")
    }
    in_log = () if item_table is not None else (column,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the log: it has been read before
        log = load(data.source, cache_dir=cache_dir, attributes=in_log, **options)
    if item_table is not None:
        return read_item_attribute(item_table, log, attribute=column, encoding=data.encoding)
    if column not in log.attributes:
        raise DataError(f"{data.source} has no column {column!r}", remedy="give an item table")
    return log.attributes[column]
