"""What was shown and what users did, as files that `audit` and `fit` read.

Everything is read in one transaction, so that the four files are of one state. Lists and feedback
come in blocks; what belongs to the lists of a block, the database sorts in their order and hands
out alongside. So memory holds a block and never the whole history.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.files import write_atomically, written_together
from fairhorizon.model.model import Model
from fairhorizon.service.replica.snapshot import loaded
from fairhorizon.service.store.catalogue import forgotten_users, items_changed_since
from fairhorizon.service.store.database import BLOCK, Database, in_blocks
from fairhorizon.service.store.schema import confirmations, feedback, lists
from fairhorizon.service.store.state import model_row, read_state

LISTS, IMPRESSIONS, FEEDBACK = "lists.parquet", "impressions.parquet", "feedback.parquet"
ANSWERS = "answers.parquet"
LOG, ITEMS = "log.parquet", "items.parquet"
LISTS_AT_ONCE = BLOCK // 10  # a list has some ten places
TICK = 1e-6  # seconds between two lists that were recorded together

SHOWN: dict[str, Any] = {
    "user": pl.String,
    "rank": pl.Int64,  # from 1
    "item": pl.String,
    "score": pl.Float64,
    "value": pl.Float64,
    "list": pl.String,
    "time": pl.Float64,
    "model": pl.Int64,
    "epoch": pl.Int64,
    "source": pl.String,
    "propensity": pl.Float64,
}
ANSWERED: dict[str, Any] = {
    "user": pl.String,  # missing: forgotten
    "list": pl.String,
    "rank": pl.Int64,
    "item": pl.String,
    "time": pl.Float64,
    "confirmed": pl.Boolean,
    "answered": pl.Boolean,
    "answered_at": pl.Float64,  # for the first time
    "answer": pl.String,  # type of that feedback
}
LIKED: dict[str, Any] = {
    "user": pl.String,
    "item": pl.String,
    "time": pl.Float64,
    "liked": pl.Int8,  # 1 or 0
    "propensity": pl.Float64,
}
DONE: dict[str, Any] = {
    "user": pl.String,
    "item": pl.String,
    "timestamp": pl.Float64,
    "rating": pl.Float64,
    "type": pl.String,
    "event": pl.String,
    "list": pl.String,
}


LOGGED: dict[str, Any] = {
    "user": pl.String,
    "item": pl.String,
    "timestamp": pl.Float64,
    "rating": pl.Float64,
}


@dataclass(frozen=True)
class Wanted:
    """What to export.

    begin, end: seconds since 1970; of lists when they were served, of feedback when it happened.
    types: of the feedback in its own file; none: all.
    read: types that only say that an item was seen.
    negative: types that say that it was not liked.
    with_log: also the log of the model that is served with all that users took since, and the
        items, as `fit` reads them.
    """

    begin: float | None = None
    end: float | None = None  # not in it any more
    types: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    with_log: bool = False

    def within(self, time: sa.ColumnElement[float]) -> list[sa.ColumnElement[bool]]:
        after = [] if self.begin is None else [time >= self.begin]
        return after if self.end is None else [*after, time < self.end]


@dataclass
class Exported:
    """How many rows each file has, and how many events of each type."""

    rows: dict[str, int] = field(default_factory=dict)
    types: Counter[str] = field(default_factory=Counter)


class ParquetParts:
    """A Parquet file that is written block by block: never more than a block of it is in memory.

    Blocks are small files in a folder, and in the end one file.
    """

    def __init__(self, folder: Path, schema: dict[str, Any]) -> None:
        folder.mkdir()
        self.folder, self.schema = folder, schema
        self.rows = 0
        self._files: list[Path] = []

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Some rows; their cells are in the order of the schema."""
        # A file without rows has one empty part, which carries the columns.
        if rows or not self._files:
            file = self.folder / f"{len(self._files)}.parquet"
            pl.DataFrame(rows, schema=self.schema, orient="row").write_parquet(file)
            self._files.append(file)
            self.rows += len(rows)

    def write(self, path: Path) -> None:
        """All rows in the order in which they came, streamed from one file to the other."""
        if not self._files:
            self.add([])
        write_atomically(path, lambda draft: pl.scan_parquet(self._files).sink_parquet(draft))


def export(database: Database, folder: Path, wanted: Wanted) -> Exported:
    """Write the four files, with_log six; all of them or none."""
    found = Exported()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as room:
        schemas = {LISTS: SHOWN, IMPRESSIONS: ANSWERED, FEEDBACK: DONE, ANSWERS: LIKED}
        parts = {name: ParquetParts(Path(room) / name, each) for name, each in schemas.items()}
        with database.reading() as connection:
            _showings(connection, wanted, parts)
            _events(connection, wanted, parts[FEEDBACK], found.types)
            tables = _log_and_items(database, connection, wanted) if wanted.with_log else {}
        # The files get their names together at the end, or none of them does.
        with written_together():
            for name, table in tables.items():
                write_atomically(folder / name, table.write_parquet)
                found.rows[name] = len(table)
            for name, one in parts.items():
                one.write(folder / name)
                found.rows[name] = one.rows
    return found


def _showings(connection: Connection, wanted: Wanted, parts: dict[str, ParquetParts]) -> None:
    chosen = wanted.within(lists.c.served_at)
    worth = lists.c["values"].label("worth")
    query = sa.select(lists, worth).where(*chosen).order_by(lists.c.number)
    confirmed = _Alongside(connection, _confirmed(chosen))
    answers = _Alongside(connection, _answers(chosen, wanted.read))
    last = 0.0
    for block in in_blocks(connection, query, LISTS_AT_ONCE):
        showings: list[Sequence[Any]] = []
        impressions: list[Sequence[Any]] = []
        liked: list[Sequence[Any]] = []
        for row in block:
            # Lists that were recorded together have one time; `audit` tells lists apart by it.
            last = max(row.served_at, last + TICK)
            seen = {one.place for one in confirmed.of(row.number)}
            given = answers.of(row.number)
            # Lists of forgotten users count as impressions, but are nobody's.
            if row.user_id is not None:
                showings += _list_rows(row, last)
                liked += _answer_rows(row, last, given, wanted.negative)
            impressions += _impression_rows(row, last, seen, _first_answers(given))
        parts[LISTS].add(showings)
        parts[IMPRESSIONS].add(impressions)
        parts[ANSWERS].add(liked)


def _list_rows(row: Any, time: float) -> Iterator[Sequence[Any]]:
    probabilities = row.propensities or [None] * len(row.items)
    places = zip(row.items, row.scores, row.worth, probabilities, strict=True)
    for rank, (item, score, value, chance) in enumerate(places, start=1):
        yield (
            *(row.user_id, rank, item, score, value, row.id, time),
            *(row.model_id, row.epoch, row.source, chance),
        )


def _impression_rows(
    row: Any, time: float, seen: set[int], first: dict[str, Any]
) -> Iterator[Sequence[Any]]:
    for place, item in enumerate(row.items):
        answer = first.get(item)
        what = (None, None) if answer is None else (answer.time, answer.type)
        yield (
            *(row.user_id, row.id, place + 1, item, time),
            *(place in seen, answer is not None, *what),
        )


def _answer_rows(
    row: Any, time: float, given: Sequence[Any], negative: Sequence[str]
) -> Iterator[Sequence[Any]]:
    """What was liked is what a replica takes for it too (`UserHistories.answers`)."""
    liked = {one.item_id for one in given if one.type not in negative}
    probabilities = row.propensities or [None] * len(row.items)
    for item, chance in zip(row.items, probabilities, strict=True):
        yield row.user_id, item, time, int(item in liked), chance


def _confirmed(chosen: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    return (
        sa.select(lists.c.number, confirmations.c.place)
        # In the order of the lists, as `_Alongside` needs it.
        .join(lists, lists.c.id == confirmations.c.list_id)
        .where(*chosen)
        .order_by(lists.c.number)
    )


def _answers(chosen: Sequence[sa.ColumnElement[bool]], read: Sequence[str]) -> sa.Select[Any]:
    return (
        sa.select(lists.c.number, feedback.c.item_id, feedback.c.time, feedback.c.type)
        .join(lists, lists.c.id == feedback.c.list_id)
        .where(feedback.c.type.not_in(read), *chosen)
        .order_by(lists.c.number, feedback.c.time, feedback.c.id)
    )


def _first_answers(rows: Sequence[Any]) -> dict[str, Any]:
    first: dict[str, Any] = {}
    for row in rows:
        first.setdefault(row.item_id, row)
    return first


def _events(
    connection: Connection, wanted: Wanted, parts: ParquetParts, types: Counter[str]
) -> None:
    chosen = wanted.within(feedback.c.time)
    if wanted.types:
        chosen.append(feedback.c.type.in_(wanted.types))
    query = sa.select(feedback).where(*chosen).order_by(feedback.c.id)
    for block in in_blocks(connection, query):
        types.update(row.type for row in block)
        parts.add(
            [
                (
                    *(row.user_id, row.item_id, row.time, row.value),
                    *(row.type, row.event_id, row.list_id),
                )
                for row in block
            ]
        )


def _log_and_items(
    database: Database, connection: Connection, wanted: Wanted
) -> dict[str, pl.DataFrame]:
    """The log to fit the next model on, and the items with everything limits may be about."""
    number = read_state(database, connection).model_id
    model = None if number is None else loaded(model_row(connection, number).folder)
    gone = forgotten_users(connection)
    chosen = [feedback.c.type.not_in((*wanted.read, *wanted.negative))]
    if wanted.types:
        chosen = [feedback.c.type.in_(wanted.types)]
    query = sa.select(feedback.c.user_id, feedback.c.item_id, feedback.c.time, feedback.c.value)
    rows = [
        (row.user_id, row.item_id, row.time, row.value)
        for row in connection.execute(query.where(*chosen).order_by(feedback.c.id))
    ]
    events = pl.DataFrame(rows, schema=LOGGED, orient="row")
    log = events if model is None else pl.concat([_log_of(model), events])
    # Hashes are computed once per user and not per row. The log of the model has them still.
    left_out = [one for one in log["user"].unique().to_list() if one in gone]
    log = log.filter(~pl.col("user").is_in(left_out))
    # A model of last night has the events until then in its log already.
    log = log.unique(["user", "item", "timestamp"], keep="first", maintain_order=True)
    return {LOG: log.sort("timestamp", maintain_order=True), ITEMS: _items(connection)}


def _log_of(model: Model) -> pl.DataFrame:
    """The log that a model was fitted on, with ids as text and every time that a row was repeated.

    A log without times is before all events, in its own order.
    """
    log = model.state.catalogue.log
    # Times -n to -1: before 1970, and so before every event.
    times = np.arange(len(log)) - len(log) if log.timestamps is None else log.timestamps
    users, items, ratings = log.users, log.items, log.ratings
    values = np.ones(len(log)) if ratings is None else ratings
    if log.weights is not None:
        values = log.weights
    if log.repeated is not None and log.repeated.timestamps is not None:
        more = log.repeated
        users, items = np.r_[users, more.users], np.r_[items, more.items]
        times, values = np.r_[times, more.timestamps], np.r_[values, more.weights]
    columns = (
        *(log.user_ids[users].astype(str), log.item_ids[items].astype(str)),
        *(times.astype(np.float64), values.astype(np.float64)),
    )
    frame = dict(zip(LOGGED, columns, strict=True))
    return pl.DataFrame(frame, schema=LOGGED).fill_nan(None)


def _items(connection: Connection) -> pl.DataFrame:
    rows = [
        {**item.columns(), "item": item.id}
        for item, is_there in items_changed_since(connection, -1)
        if is_there
    ]
    names = sorted({name for row in rows for name in row} - {"item"})
    schema = dict.fromkeys(("item", *names), pl.String)
    return pl.DataFrame(rows, schema=schema).sort("item")


class _Alongside:
    """Rows that belong to lists, read in step with the lists: a merge of two sorted queries."""

    def __init__(self, connection: Connection, query: sa.Select[Any]) -> None:
        self._rows = (row for block in in_blocks(connection, query) for row in block)
        self._next: Any = next(self._rows, None)

    def of(self, number: int) -> list[Any]:
        """Those of a list; lists are asked for in order."""
        found = []
        # Rows of lists that were not asked for are passed over.
        while self._next is not None and self._next.number <= number:
            if self._next.number == number:
                found.append(self._next)
            self._next = next(self._rows, None)
        return found
