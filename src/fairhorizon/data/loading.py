"""Loading from a frame, a file or a named set: a log, a table of items, ids of users."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.atomic_files import INTER, ITEM, AtomicColumns, atomic_file, table_beside
from fairhorizon.data.columns import Origin, as_column, known_codes
from fairhorizon.data.frames import (
    Repeats,
    as_frame,
    from_frame,
    in_polars,
    warn_of_missing_attribute,
)
from fairhorizon.data.given_split import given_split, split_files
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import ItemTable
from fairhorizon.data.log_files import ReaderOptions, read_file, read_folder, user_or_session
from fairhorizon.data.named_sets import (
    COLUMNS,
    NAMED,
    NamedColumns,
    attributes_of,
    cache_folder,
    fetch,
)
from fairhorizon.data.splits import Split, Ties
from fairhorizon.data.synthetic import GENERATORS, LARGE, drawn_log, is_synthetic, market_of
from fairhorizon.data.tables import (
    UTF_8,
    Table,
    columns_of,
    is_usual_name,
    item_column,
    log_columns,
    read_table,
)
from fairhorizon.errors import DataError, NoColumnError


def load(
    source: Any,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    time: str | int | None = None,
    rating: str | int | None = None,
    weight: str | int | None = None,
    session: str | int | None = None,
    attributes: Iterable[str | int] = (),
    name: str = "",
    repeats: Repeats = "first",
    drop_incomplete: bool = False,
    header: bool | None = None,
    separator: str | None = None,
    encoding: str = UTF_8,
    cache_dir: str | Path | None = None,
) -> Interactions:
    """A log of who took what when, from a frame, a file or a named set.

    source: a pandas or polars frame or an Arrow table with a row per interaction; the path of a
        CSV, TSV, Parquet or MovieLens file, also packed, or of a folder of such files; of an .inter
        file of RecBole, with NAME.item beside it, or of their folder; or a name:
        "ml-100k", "ml-1m", "synthetic:users=200,seed=1". A name comes first: a file that is called
        like a set is "./ml-1m", or any `Path`.
    user, item, time, rating: the names of the columns, or their positions from 0; None: found by
        their usual names. Without times the rows count as being in time order, and a warning says
        so. Times are seconds, dates or ISO text.
    weight: the column that says how much, such as a quantity or a time spent; the weights of
        repeated rows add up. "rows": how often the user took the item. None: every row counts once.
    session: the column of the session, which is read as the user.
    attributes: columns that describe items and that have to be there. Other columns are found by
        their names when a limit asks for them. Those of a MovieLens set are title, year and genre.
    name: what results call the log; empty: that of the file or set.
    repeats: which row of a repeated (user, item) pair is kept, "first" or "last" in time order.
    drop_incomplete: leave out rows without a user, an item, a time or a weight; a warning counts
        them. Without it they are an error.
    header, separator, encoding: of a text file; None: detected. Without `header` the first line is
        one unless it holds a number.
    cache_dir: where named sets are kept, and what was read of the files of a folder; None:
        FAIRHORIZON_CACHE, else ~/.cache/fairhorizon.

    Returns the log; `fit` takes it, and `split` divides it for a study.
    """
    how: ReaderOptions = {
        **{"user": user, "item": item, "rating": rating, "time": time, "weight": weight},
        **{"session": session, "attributes": attributes, "repeats": repeats},
        "drop_incomplete": drop_incomplete,
    }
    if not isinstance(source, str | Path):
        return _log_of_frame(as_frame(source), how, name)
    how |= {"header": header, "separator": separator, "encoding": encoding}
    if isinstance(source, str) and is_named(source):
        log = _named_log(source, cache_folder(cache_dir), how)
    else:
        check_source(source)
        if (inter := atomic_file(source)) is not None:
            log = _atomic_log(inter, how)
        elif Path(source).is_dir():
            log = read_folder(source, store=_part_store(cache_dir), **how)
        else:
            log = read_file(source, **how)
    return replace(log, name=name) if name else log


def load_split(
    folder: str | Path,
    *,
    ties: Ties = "auto",
    cache_dir: str | Path | None = None,
    **options: Unpack[ReaderOptions],
) -> Split:
    """A split that was made elsewhere: a folder with the files train, validation and test.

    folder: of three files, as `fairhorizon data split` writes them, or NAME.train.inter,
        NAME.valid.inter and NAME.test.inter of RecBole. A pair of user and item counts in the first
        part that has it.
    ties: the order of a user's training interactions at one time, as in `split`.
    cache_dir, options: as for `load`.
    """
    whole = log_of_split(folder, cache_dir=cache_dir, **options)
    return given_split(whole, folder, ties, **options)


def log_of_split(
    folder: str | Path, *, cache_dir: str | Path | None = None, **options: Unpack[ReaderOptions]
) -> Interactions:
    """The log of the three files of a split together."""
    files = list(split_files(folder).values())
    table = table_beside(files[0], ITEM) if files[0].suffix.lower() == INTER else None
    store = _part_store(cache_dir)
    if table is None:
        return read_folder(folder, store=store, files=files, **options)
    of_table = [str(one) for one in options.pop("attributes", ())]
    log = read_folder(folder, store=store, files=files, **options)
    columns = AtomicColumns(log, table, options.get("encoding", UTF_8))
    return with_columns(log, columns, of_table, Origin(table))


def _log_of_frame(frame: Any, how: ReaderOptions, name: str) -> Interactions:
    names = [str(one) for one in frame.columns]
    # A frame without rows: columns are found by their names alone.
    table = Table(pl.DataFrame({one: [] for one in names}), Origin(), header=True)
    served = user_or_session(how["user"], how["session"])
    found = log_columns(table, served, how["item"], how["rating"], how["time"])
    weight = how["weight"]
    return from_frame(
        frame,
        user=str(found["user"]),
        item=str(found["item"]),
        rating=found["rating"],
        timestamp=found["timestamp"],
        weight=names[weight] if isinstance(weight, int) else weight,
        attributes=[names[one] if isinstance(one, int) else one for one in how["attributes"]],
        name=name,
        repeats=how["repeats"],
        drop_incomplete=how["drop_incomplete"],
    )


def _named_log(source: str, cache: Path, how: ReaderOptions) -> Interactions:
    """The log of a named set. Generated ones have fixed columns, so that options do not apply."""
    if is_synthetic(source):
        return replace(drawn_log(source), name=source)
    wanted = how.pop("attributes", ())
    log = read_file(fetch(NAMED[source], cache), **how)
    described = attributes_of(source, cache, log, wanted)
    further = NamedColumns(source, cache, log)
    return replace(log, name=source, attributes=described, further=further)


def _atomic_log(inter: Path, how: ReaderOptions) -> Interactions:
    """The log of an .inter file, with the columns of the table of items beside it."""
    table = table_beside(inter, ITEM)
    if table is None:
        return read_file(inter, **how)
    own, encoding = columns_of(inter, encoding=how["encoding"]), how["encoding"]
    wanted = tuple(how.pop("attributes", ()))
    of_table = [one for one in wanted if isinstance(one, str) and one not in own]
    in_log: ReaderOptions = {**how, "attributes": [one for one in wanted if one not in of_table]}
    log = read_file(inter, **in_log)
    return with_columns(log, AtomicColumns(log, table, encoding), of_table, Origin(table))


def with_columns(
    log: Interactions, columns: Mapping[str, NDArray[Any]], wanted: Sequence[str], origin: Origin
) -> Interactions:
    """The log with these columns by item, (n_items,) each, and some of them as attributes."""
    found = {}
    for name in wanted:
        if name not in columns:
            remedy = f"the columns are {', '.join(map(repr, columns))}"
            raise NoColumnError(name, tuple(columns), file=origin.file, remedy=remedy)
        found[name] = columns[name]
        warn_of_missing_attribute(found[name], name, origin)
    return replace(log, attributes={**log.attributes, **found}, further=columns)


def _part_store(cache_dir: str | Path | None) -> Path | None:
    """The folder that keeps what was read of parts; None if FAIRHORIZON_NO_CACHE is set."""
    return None if os.environ.get("FAIRHORIZON_NO_CACHE") else cache_folder(cache_dir) / "parts"


def is_named(source: str) -> bool:
    """Whether a `source` as in `load` is the name of a set, whatever files there are."""
    return source in NAMED or is_synthetic(source)


def check_source(source: str | Path) -> None:
    """Refuse a text that is neither the name of a set nor a path where something is."""
    if isinstance(source, str) and not is_named(source) and not Path(source).exists():
        raise DataError(
            f"{source!r} is neither a file nor a named data set",
            remedy=f"the named sets are {', '.join([*NAMED, *GENERATORS, *LARGE])}",
        )


def item_columns(source: str) -> tuple[str, ...]:
    """The columns of a named set that describe items; does not download anything."""
    if source in NAMED:
        return COLUMNS
    market = market_of(source)
    return () if market is None else tuple(market.interactions.attributes)


def load_items(source: Any, *, item: str | int | None = None, encoding: str = UTF_8) -> ItemTable:
    """A table of items, from a frame or a file with a row per item.

    item: what the log calls the item, if the table may do so too; else the column is found by its
        usual name.
    encoding: of a text file.
    """
    if isinstance(source, str | Path):
        names = [item] if isinstance(item, str) and not item.isdecimal() else []
        table = read_table(source, names=names, encoding=encoding)
    else:
        table = Table(in_polars(as_frame(source)), Origin(), header=True)
    return ItemTable.from_frame(table.frame, item_column(table, item), table.origin)


# ---- The users whom lists are made for: typed ids, or a file of them -----------------------------
def user_codes(ids: Sequence[str], log: Interactions) -> NDArray[np.int64]:
    """(n,) the codes of users by their ids, each once; a DataError names an unknown id."""
    code_of = {str(known): code for code, known in enumerate(log.user_ids.tolist())}
    for one in ids:
        if one not in code_of:
            raise DataError(_unknown(one, log), remedy="give ids of the data")
    return np.array([code_of[one] for one in dict.fromkeys(ids)], dtype=np.int64)


def read_user_ids(path: Path, log: Interactions, column: str | int | None = None) -> list[str]:
    """The ids of a file: one per line, or those of the user column of a table.

    column: what the data calls the user, by which a header is recognised besides the usual names.
    An id that the log does not have is a DataError with file and line.
    """
    cells, first_row, table = _ids(path, column)
    known = set(map(str, log.user_ids.tolist()))
    for row, one in enumerate(cells, start=first_row):
        if one not in known:
            table.origin.fail(_unknown(one, log), row, "give ids of the data")
    return cells


def _ids(path: Path, column: str | int | None) -> tuple[list[str], int, Table]:
    """The ids, the row of the table that holds the first one, and the table."""
    # header=False: the first of a list of ids that are text would be taken for a header.
    table = read_table(path, header=False)
    named = table.frame.columns if table.header else table.frame.row(0)
    names = [str(name).strip() for name in named]
    user = next((at for at, name in enumerate(names) if name == column), None)
    if user is None:
        user = next((at for at, name in enumerate(names) if is_usual_name(name, "user")), None)
    if user is None and len(names) > 1:
        table.origin.fail(
            f"no column looks like the user; there are {', '.join(map(repr, names))}",
            remedy="give a file with one id per line, or with a column called user",
        )
    first_row = 0 if table.header or user is None else 1
    cells = table.frame.to_series(user or 0).to_list()[first_row:]
    return [str(cell).strip() for cell in cells], first_row, table


@dataclass(frozen=True, eq=False)
class ChosenPairs:
    """Items that a file names, for a user each or for everybody."""

    users: NDArray[np.int64] | None  # (n,) codes; None: the items are for everybody
    items: NDArray[np.int64]  # (n,) codes
    unknown: int  # rows of other users or items, left out


def read_chosen_pairs(
    path: Path, log: Interactions, user: str | int | None, item: str | int | None
) -> ChosenPairs:
    """Read a file with a row per user and item, or with one item per line for everybody.

    user, item: what the data calls them, which the file may do too.
    """
    names = [name for name in (user, item) if isinstance(name, str)]
    table = read_table(path, names=names)
    columns = table.frame.columns
    if len(columns) == 1:
        cells, first = table.frame[columns[0]], columns[0]
        if not table.header or not (first == item or is_usual_name(first, "item")):
            # A file of ids that are text has no header, though its first line looks like one.
            table = read_table(path, header=False)
            cells = table.frame["0"]
        items = known_codes(as_column(cells), "item", log.item_ids, table.origin)
        known = items >= 0
        return ChosenPairs(None, items[known], int((~known).sum()))
    own = (name if isinstance(name, str) and name in columns else None for name in (user, item))
    found = log_columns(table, *own)
    users, items = (
        known_codes(as_column(table.frame[str(found[role])]), role, ids, table.origin)
        for role, ids in (("user", log.user_ids), ("item", log.item_ids))
    )
    known = (users >= 0) & (items >= 0)
    return ChosenPairs(users[known], items[known], int((~known).sum()))


def _unknown(one: str, log: Interactions) -> str:
    return f"user {one!r} is not in {log.name or 'the data'}"
