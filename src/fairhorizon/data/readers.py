"""Read interactions and item attributes from files; columns are given or found by name."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.columns import Origin, encode, is_missing
from fairhorizon.data.frames import ROWS, Repeats, from_frame, warn_of_missing_attribute
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.tables import UTF_8, ParquetColumns, Table, read_table
from fairhorizon.errors import ConfigError, DataError, NoColumnError

# Compared in lower case without "_", "-" and blanks.
USUAL_NAMES = {
    "user": (
        *("user", "userid", "uid", "customer", "customerid", "visitorid", "sessionid"),
        *("buyer", "buyerid", "client", "clientid", "member", "memberid", "accountid"),
    ),
    "item": (
        "item",
        "itemid",
        "iid",
        "movieid",
        "movie",
        "productid",
        "product",
        "asin",
        "trackid",
        *("sku", "article", "articleid", "listingid", "songid", "bookid", "stockcode"),
    ),
    "rating": ("rating", "ratings", "score", "stars"),
    "timestamp": (
        *("timestamp", "time", "ts", "unixtime", "datetime", "date", "eventtime"),
        *("createdat", "boughtat", "orderedat", "purchasedat", "orderdate", "invoicedate"),
    ),
    "rank": ("rank", "position", "pos", "slot"),
    "title": ("title", "name", "movietitle", "itemname", "producttitle", "productname"),
}
POSITIONS = {"user": 0, "item": 1, "rating": 2, "timestamp": 3}  # of a file without header


class ReaderOptions(TypedDict, total=False):
    """The options of `read_interactions`, for functions that pass them on."""

    user: str | int | None
    item: str | int | None
    rating: str | int | None
    timestamp: str | int | None
    weight: str | int | None
    session: str | int | None
    attributes: Iterable[str | int]
    header: bool | None
    separator: str | None
    encoding: str
    repeats: Repeats


@dataclass(frozen=True)
class Columns:
    """Which columns hold what: a name, or a position from 0; None looks for the usual names.

    A file without header has its columns in MovieLens order: user, item, rating, timestamp.
    """

    user: str | int | None = None
    item: str | int | None = None
    rating: str | int | None = None
    timestamp: str | int | None = None

    def find(self, table: Table) -> dict[str, str | None]:
        """The column of the table for each role; user and item are required."""
        return find_columns(table, {role: getattr(self, role) for role in POSITIONS}, POSITIONS)


def find_columns(
    table: Table,
    wanted: Mapping[str, str | int | None],
    positions: Mapping[str, int],
    *,
    option: str = "",
) -> dict[str, str | None]:
    """The column for each role: the wanted one, else by usual name or, without header, position.

    User and item are required; `option` is the prefix of option names in messages.
    """
    found = {role: _find(role, name, table, positions.get(role)) for role, name in wanted.items()}
    for role in ("user", "item"):
        if found[role] is None:
            table.origin.fail(
                f"no column looks like the {role}",
                remedy=f"the columns are {', '.join(map(repr, table.frame.columns))}: name it with "
                f"the option `{option}{role}`, or give the `{option}separator` if they are split "
                "wrongly",
            )
    return found


def _find(role: str, wanted: str | int | None, table: Table, position: int | None) -> str | None:
    columns = table.frame.columns
    if wanted is not None:
        return _given(wanted, table)
    if not table.header:
        return columns[position] if position is not None and position < len(columns) else None
    spelt = {_spelling(column): column for column in reversed(columns)}
    return next((spelt[name] for name in USUAL_NAMES[role] if name in spelt), None)


def _given(wanted: str | int, table: Table, roles: Collection[str | None] = ()) -> str:
    """The column that is wanted; `roles` are columns that are used for something else."""
    columns = table.frame.columns
    if isinstance(wanted, int) and 0 <= wanted < len(columns):
        return columns[wanted]
    if wanted not in columns:
        others = [column for column in columns if column not in roles]
        remedy = f"the columns are {', '.join(map(repr, columns))}"
        raise NoColumnError(wanted, others, file=table.origin.file, remedy=remedy)
    return str(wanted)


def is_usual_name(name: str, role: str) -> bool:
    """Whether a column of this name is found for the role, such as the user."""
    return _spelling(name) in USUAL_NAMES[role]


def _spelling(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def read_interactions(
    path: str | Path,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    timestamp: str | int | None = None,
    weight: str | int | None = None,
    session: str | int | None = None,
    attributes: Iterable[str | int] = (),
    header: bool | None = None,
    separator: str | None = None,
    encoding: str = UTF_8,
    repeats: Repeats = "first",
) -> Interactions:
    """Read a log from CSV, TSV, Parquet, MovieLens u.data or ratings.dat, or RecBole .inter.

    Without `header` the first line is one unless it holds a number; without `separator` it follows
    from the suffix and the first line. `attributes` are columns that describe the item. A file may
    be packed by gzip, or be the only one in a zip. `encoding` is that of text without a byte order
    mark. `weight` is the column that says how much, "rows" for how often. A `session` is read as a
    user: whoever comes next is a new one.
    """
    options: ReaderOptions = {
        **{"user": user, "item": item, "rating": rating, "timestamp": timestamp},
        **{"weight": weight, "session": session, "attributes": attributes},
        **{"header": header, "separator": separator, "encoding": encoding},
    }
    found = locate(path, options)
    roles: dict[str, Any] = found.labels
    return from_frame(
        found.frame,
        **roles,
        attributes=found.attributes,
        name=Path(path).name,
        repeats=repeats,
        origin=found.origin,
    )


@dataclass(frozen=True)
class Located:
    """The rows of a file, and which of its columns hold what."""

    frame: Any  # polars, or the columns of a Parquet file, read when they are asked for
    origin: Origin
    labels: dict[str, str | None]  # role -> column; None: there is none
    attributes: list[str]


def locate(path: str | Path, options: ReaderOptions) -> Located:
    """Open a file and find its columns; `options` as for `read_interactions`."""
    attributes = tuple(options.get("attributes", ()))
    columns = Columns(
        who_is_served(options.get("user"), options.get("session")),
        options.get("item"),
        options.get("rating"),
        options.get("timestamp"),
    )
    given = (*vars(columns).values(), options.get("weight"), *attributes)
    names = [name for name in given if isinstance(name, str) and not name.isdecimal()]
    how: dict[str, Any] = {
        key: value for key, value in options.items() if key in ("header", "separator", "encoding")
    }
    lazy = ParquetColumns.from_file(Path(path))
    if lazy is None:
        table = read_table(path, names=names, **how)
    else:
        table = Table(lazy.nothing, Origin(path), header=True)
    found = columns.find(table)
    weight = _weight(options.get("weight"), table, found.values())
    others = [_given(attribute, table, found.values()) for attribute in attributes]
    found["weight"] = weight
    return Located(table.frame if lazy is None else lazy, table.origin, found, others)


def who_is_served(user: str | int | None, session: str | int | None) -> str | int | None:
    """The column of the user, or that of the session."""
    if user is not None and session is not None:
        raise ConfigError(f"user {user!r} and session {session!r}: who is served? (give one)")
    return user if session is None else session


def _weight(wanted: str | int | None, table: Table, roles: Collection[str | None]) -> str | None:
    if wanted is None or (wanted == ROWS and ROWS not in table.frame.columns):
        return wanted
    return _given(wanted, table, roles)


def read_item_attribute(
    path: str | Path,
    interactions: Interactions,
    *,
    item: str | int | None = None,
    attribute: str | int,
    header: bool | None = None,
    separator: str | None = None,
    encoding: str = UTF_8,
    is_complete: bool = True,
) -> NDArray[Any]:
    """The attribute of every item of the log as text, (n_items,), from a table with a row per item.

    Without `item` the item column is found by its usual name, or is the first one without header.
    An empty cell gives empty text, and a warning says how many there are. An item without a row is
    an error, or, of a table that is not complete, empty text.
    """
    given = [name for name in (item, attribute) if isinstance(name, str) and not name.isdecimal()]
    table = read_table(path, names=given, header=header, separator=separator, encoding=encoding)
    if item is None and not table.header:
        item = 0
    item_column = Columns(user=0, item=item).find(table)["item"]
    column = table.frame[_given(attribute, table, [item_column])]
    ids, codes = encode(table.frame[str(item_column)].to_numpy(), str(item_column), table.origin)
    _, rows = np.unique(codes, return_index=True)
    first_row = dict(zip(map(str, ids.tolist()), rows.tolist(), strict=True))
    values = []
    for wanted in map(str, interactions.item_ids.tolist()):
        if wanted not in first_row and not is_complete:
            values.append("")
            continue
        if wanted not in first_row:
            raise DataError(
                f"item {wanted} of {interactions.name or 'the log'} is not in the table",
                file=path,
                remedy="add a row for it",
            )
        cell = column[first_row[wanted]]
        values.append("" if is_missing(cell) else str(cell))
    cells = np.array(values, dtype=object)
    if is_complete:
        warn_of_missing_attribute(cells, column.name, table.origin)
    return cells


def columns_of(path: str | Path, *, encoding: str = UTF_8, **how: Any) -> list[str]:
    """The names of the columns of a file; none of a file without a header."""
    lazy = ParquetColumns.from_file(Path(path))
    if lazy is not None:
        return lazy.columns
    table = read_table(path, encoding=encoding, head=True, **how)
    return table.frame.columns if table.header else []


def title_among(columns: Iterable[str]) -> str | None:
    """The column with the titles of items, by its usual name."""
    spelt = {_spelling(column): column for column in columns}
    return next((spelt[name] for name in USUAL_NAMES["title"] if name in spelt), None)
