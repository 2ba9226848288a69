"""Which data a command is about: the log, its split, the limited group and the groups of limits."""

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from fairhorizon import __version__
from fairhorizon.data.columns import Origin
from fairhorizon.data.frames import warn_of_missing_attribute
from fairhorizon.data.given_split import given_split
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import ItemTable
from fairhorizon.data.loading import load, load_items, log_of_split
from fairhorizon.data.locations import AREA, AREA_KM, attribute_or_area
from fairhorizon.data.log_files import ReaderOptions
from fairhorizon.data.splits import Split, earlier_part, split, split_by_time, uncut, with_ties
from fairhorizon.data.tables import UTF_8
from fairhorizon.errors import ConfigError, DataError, NoColumnError
from fairhorizon.limits.groups import POPULAR_SHARE, attribute_group, popular_group
from fairhorizon.limits.language import GroupOf, Limit
from fairhorizon.limits.resolved import ResolvedLimit, resolve_limits
from fairhorizon.settings import Settings
from fairhorizon.vocabulary import POPULAR


class DataSpec(Settings):
    """How to get the same data, split and groups again."""

    source: str
    """Name of a data set, or path of a file."""
    user: str | int | None = None
    """Column of the user, by name or by position from 0; None: found by its name."""
    item: str | int | None = None
    """Column of the item, by name or by position from 0; None: found by its name."""
    rating: str | int | None = None
    """Column of the rating, by name or by position from 0; None: found by its name, if any."""
    timestamp: str | int | None = None
    """Column of the time, by name or by position from 0; None: found by its name, if any."""
    weight: str | int | None = None
    """Column that says how much, such as a quantity, by name or by position from 0; "rows": how
    often the user took the item; None: every interaction counts once."""
    session: str | int | None = None
    """Column of the session, by name or by position from 0, read as the user; None: there is one
    of users."""
    area_km: float = Field(AREA_KM, gt=0)
    """Width of the areas that items with coordinates are in, in kilometres."""
    header: bool | None = None
    """Whether the first line is a header; None: detected."""
    separator: str | None = None
    """Text between two cells; None: detected."""
    encoding: str = UTF_8
    """Encoding of the text of the file and of the item table; a byte order mark comes first."""
    drop_incomplete: bool = False
    """Whether rows without a user, an item, a time or a weight are left out, and counted."""
    cut: Literal["per-user", "time", "given", "none"] = "per-user"
    """How the log is split: the last items of every user, or everything after one time; given: as
    the files train, validation and test of its folder are; none: all of it is for training."""
    ties: Literal["auto", "keep"] | NonNegativeInt = "auto"
    """Order of a user's interactions at one time: keep that of the file, or shuffle with this seed;
    auto: shuffled with seed 0 if more than a tenth of the rows are in such a tie."""
    item_table: str | None = None
    """Path of a file with a row per item that has the group column; None: the log has it."""
    group_column: str | None = None
    """Column whose values are the groups of items; None: groups by popularity."""
    sensitive_values: tuple[str, ...] = ()
    """Values of the group column whose exposure is limited."""

    @property
    def group_name(self) -> str:
        """What the limited group is called: "popular", or as in "genre = Drama or War"."""
        if self.group_column is None:
            return POPULAR
        return f"{self.group_column} = {' or '.join(self.sensitive_values)}"

    @property
    def limited_group(self) -> GroupOf:
        """The limited group, as limits call it."""
        if self.group_column is None:
            return GroupOf(POPULAR)
        return GroupOf(self.group_column, self.sensitive_values)

    @property
    def served_column(self) -> str | int | None:
        """The column of those who are served: users, or sessions."""
        return self.user if self.session is None else self.session

    def open(
        self, cache_dir: Path | None = None, popular_share: float = POPULAR_SHARE
    ) -> "Dataset":
        """The log, its split, and the group by the attribute or else by popularity."""
        if bool(self.group_column) != bool(self.sensitive_values):
            raise ConfigError("a group column and its sensitive values go together (give both)")
        if self.item_table is not None and self.group_column is None:
            raise ConfigError(
                f"{self.item_table}: which column has the groups? (name it too, or give a limit "
                "on one; items that only this table has are served after `fit --all`)"
            )
        # The columns of the log that describe items are read only where they are asked for; `area`
        # is made of two columns elsewhere.
        in_log = self.item_table is None and self.group_column not in (None, AREA)
        log = self.read(cache_dir, (self.group_column,) if in_log and self.group_column else ())
        if self.cut == "none":
            parts = uncut(with_ties(log, self.ties))
            # Shuffling ties has changed the order of rows, and the log has to be the one that is
            # fitted.
            log = parts.train
        elif self.cut == "time":
            parts = split_by_time(log, ties=self.ties)
        elif self.cut == "given":
            parts = given_split(log, self.source, self.ties, **self._reading)
        else:
            parts = split(log, ties=self.ties)
        sensitive = self._sensitive(log, parts, popular_share, cache_dir)
        return Dataset(log, parts, sensitive, self.group_name)

    def read(self, cache_dir: Path | None, attributes: Sequence[str] = ()) -> Interactions:
        """The log, with columns that describe its items."""
        how: ReaderOptions = {**self._reading, "attributes": attributes}
        read = log_of_split if self.cut == "given" else load
        return read(self.source, cache_dir=cache_dir, **how)

    @property
    def _reading(self) -> ReaderOptions:
        return {
            "user": self.user,
            "item": self.item,
            "rating": self.rating,
            "time": self.timestamp,
            "weight": self.weight,
            "session": self.session,
            "header": self.header,
            "separator": self.separator,
            "encoding": self.encoding,
            "drop_incomplete": self.drop_incomplete,
        }

    def table_of_items(self, path: str | Path) -> ItemTable:
        """A file with a row per item; its item column may be called as that of the log."""
        return load_items(path, item=self.item, encoding=self.encoding)

    def column_of_table(
        self, path: str | Path, column: str, log: Interactions, *, is_complete: bool = True
    ) -> NDArray[Any]:
        """(n_items,) a column of a file with a row per item, for every item of the log.

        is_complete: whether every item needs a row; then a warning counts empty cells, too.
        """
        table = self.table_of_items(path)
        cells = table.attribute(column, log.item_ids.tolist(), complete=is_complete)
        if is_complete:
            warn_of_missing_attribute(cells, column, Origin(path))
        return cells

    def _sensitive(
        self, log: Interactions, parts: Split, share: float, cache_dir: Path | None
    ) -> NDArray[np.bool_]:
        if self.group_column is None:
            return popular_group(parts.train.item_counts(), share)
        if self.group_column == AREA:
            values = item_attribute(self, self.item_table, AREA, cache_dir)
        elif self.item_table is not None:
            values = self.column_of_table(self.item_table, self.group_column, log)
        elif self.group_column in log.attributes:
            values = log.attributes[self.group_column]
        else:
            raise DataError(
                f"{self.source} has no column {self.group_column!r}",
                remedy="give an item table that has it",
            )
        return attribute_group(values, self.sensitive_values)


@dataclass(frozen=True)
class Dataset:
    """A log, its split and the group whose exposure is limited."""

    log: Interactions
    split: Split
    sensitive: NDArray[np.bool_]  # (n_items,) G0
    group_name: str = POPULAR  # what G0 is called


@lru_cache(maxsize=2)
def open_dataset(
    data: DataSpec, cache_dir: Path | None, popular_share: float = POPULAR_SHARE
) -> Dataset:
    """The data of a specification, read once per process: most commands ask for it repeatedly."""
    return data.open(cache_dir, popular_share)


@dataclass(frozen=True)
class DataPlace:
    """Tells worker processes which data to read.

    Each reads the data for itself, which is cheaper than sending it along with every task.
    """

    data: DataSpec
    cache_dir: Path | None
    popular_share: float

    def dataset(self) -> Dataset:
        return open_dataset(self.data, self.cache_dir, self.popular_share)


@lru_cache(maxsize=2)
def open_earlier_part(data: DataSpec, cache_dir: Path | None) -> Split:
    """The training log with test and validation items of its own."""
    return earlier_part(open_dataset(data, cache_dir).split)


def item_attribute(
    data: DataSpec,
    item_table: str | None,
    column: str,
    cache_dir: Path | None,
    is_complete: bool = True,
) -> NDArray[Any]:
    """(n_items,) the attribute of every item, from the table or else from the log.

    `area` is made of latitude and longitude, unless there is a column that is called so.

    is_complete: whether a table has to have a row for every item.
    """
    return attribute_or_area(
        column, lambda name: _cells(data, item_table, name, cache_dir, is_complete), data.area_km
    )


@lru_cache(maxsize=16)
def _cells(
    data: DataSpec, item_table: str | None, column: str, cache_dir: Path | None, is_complete: bool
) -> NDArray[Any]:
    in_log = () if item_table is not None else (column,)
    with warnings.catch_warnings():
        # The log has been read before, and its warnings were shown then.
        warnings.simplefilter("ignore")
        log = data.read(cache_dir, in_log)
    if item_table is not None:
        return data.column_of_table(item_table, column, log, is_complete=is_complete)
    if column not in log.attributes:
        known = tuple(log.attributes)
        raise NoColumnError(column, known, file=data.source, remedy="give an item table")
    return log.attributes[column]


def bound_limits(
    limits: Sequence[Limit],
    data: DataSpec,
    cache_dir: Path | None,
    item_table: str | None = None,
    *,
    split: Split | None = None,
    popular_share: float = POPULAR_SHARE,
) -> list[ResolvedLimit]:
    """The limits on the items of the data; COLUMN:each becomes a limit for every value.

    item_table: a file with a row per item; without it, the columns are those of the log.
    split: of the data, where it was read already.
    popular_share: of the catalogue, by training count, that is the group `popular`.
    """

    # A function, as limits on attributes do not need the split, which takes long to make.
    def counts() -> NDArray[np.int64]:
        return (split or open_dataset(data, cache_dir).split).train.item_counts()

    return resolve_limits(
        limits,
        counts,
        lambda column: item_attribute(data, item_table, column, cache_dir),
        popular_share=popular_share,
        elsewhere="" if item_table else "name one, or give the --item-table that has it",
    )


def key_of(data: DataSpec, cache_dir: Path | None, *parts: object) -> str:
    """A key for caches: equal for equal data, parts and version of the program, else different."""
    text = json.dumps([__version__, _fingerprint(data, cache_dir), *parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=2)
def _fingerprint(data: DataSpec, cache_dir: Path | None) -> list[str]:
    # Of the contents and not of the settings: a file may change under the same name.
    dataset = open_dataset(data, cache_dir)
    groups = hashlib.sha256(dataset.sensitive.tobytes()).hexdigest()[:16]
    return [*fingerprints(dataset.split), groups]


@lru_cache(maxsize=2)
def early_fingerprints(data: DataSpec, cache_dir: Path | None) -> list[str]:
    return fingerprints(open_earlier_part(data, cache_dir))


def fingerprints(parts: Split) -> list[str]:
    return [log.fingerprint() for log in (parts.train, parts.validation, parts.test)]
