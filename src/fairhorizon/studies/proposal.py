"""What a log holds, and which limits would be sensible for it: the contents of a first config."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.columns import Origin, to_times
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.loading import is_named, load, load_items
from fairhorizon.data.log_files import ReaderOptions, first_file, user_or_session
from fairhorizon.data.splits import split
from fairhorizon.data.tables import Table, log_columns, read_table
from fairhorizon.errors import DataError
from fairhorizon.files import write_text
from fairhorizon.limits.groups import (
    POPULAR_SHARE,
    attribute_group,
    attribute_values,
    popular_group,
)
from fairhorizon.limits.language import GroupOf, Limit
from fairhorizon.vocabulary import Weighing

FEWEST_VALUES, MOST_VALUES = 2, 50  # of a column that may hold groups
MOST_NAMED = 5  # values of a group that is proposed
MEASUREMENT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
STEP = 0.05  # shares are proposed in steps of

FIRST_ROWS = 1000  # by which a column is recognised as times
EARLIEST, LATEST = 3.2e8, 4.1e9  # seconds since 1970: the years 1980 and 2100


@dataclass(frozen=True)
class FloorProposal:
    """A floor for the values of a column that the log has least of."""

    limit: Limit
    of_log: float  # their share of the log
    n_values: int  # of the column


@dataclass(frozen=True)
class ConfigProposal:
    """What was found in a log, and limits for it."""

    rows: int
    users: int
    items: int
    columns: Mapping[str, str | int | None]  # by role; empty of a named set
    others: tuple[str, ...]  # columns of the log without a role
    item_columns: tuple[str, ...]  # of the item table, without the item
    popular: Limit
    popular_binds: bool  # whether the log shows popular items more than that
    popular_of_log: float  # their share of the training log
    floors: tuple[FloorProposal, ...]


def propose(
    source: str, reading: ReaderOptions, item_table: Path | None, cache_dir: Path | None
) -> ConfigProposal:
    """Read a log as `load` does, and the table of its items if there is one."""
    table, found = None, {}
    if not is_named(source) and Path(source).exists():
        table = _table(str(first_file(source)), reading)
        found = _found(table, reading)
        # A log without a column that is called like a time may have one under another name; without
        # times the split would be by rows.
        if found.get("timestamp") is None and (time := _only_time(table, found)) is not None:
            found["timestamp"], reading = time, {**reading, "time": time}
    others = [] if table is None else [c for c in table.frame.columns if c not in found.values()]
    in_log = [] if table is None else _of_items(table.frame, str(found["item"]), others)
    with_attributes: ReaderOptions = {**reading, "attributes": in_log}
    log = load(source, cache_dir=cache_dir, **with_attributes)
    described = dict(log.attributes)
    item_columns: list[str] = []
    if item_table is not None:
        encoding = reading.get("encoding", "utf-8")
        items = load_items(item_table, item=reading.get("item"), encoding=encoding)
        item_columns = list(items.columns)
        described = {
            column: items.attribute(column, log.item_ids.tolist()) for column in item_columns
        }
    counts = split(log).train.item_counts()
    of_log = float(counts[popular_group(counts)].sum() / counts.sum())
    # Halfway from what the log has to the share that these items are of the catalogue.
    share = max(STEP, _down((of_log + POPULAR_SHARE) / 2))
    return ConfigProposal(
        rows=len(log),
        users=log.n_users,
        items=log.n_items,
        columns={role: _position(name, table) for role, name in found.items()},
        others=tuple(others),
        item_columns=tuple(item_columns),
        popular=replace(Limit.popular(share), weighing=Weighing.LOG),
        popular_binds=share < of_log,
        popular_of_log=of_log,
        floors=tuple(_floors(described, log)),
    )


def _found(table: Table, reading: ReaderOptions) -> dict[str, str | None]:
    """The columns by role; those who are served are a session where one was named."""
    session, weight = reading.get("session"), reading.get("weight")
    who = user_or_session(reading.get("user"), session)
    found = log_columns(table, who, reading.get("item"), reading.get("rating"), reading.get("time"))
    if session is not None:
        found = {"session": found.pop("user"), **found}
    if weight is not None:
        names = table.frame.columns
        found["weight"] = names[weight] if isinstance(weight, int) else weight
    return found


def _only_time(table: Table, found: Mapping[str, str | None]) -> str | None:
    """The one column without a role whose values can hardly be anything but times."""
    names = [name for name in table.frame.columns if name not in found.values()]
    times = [name for name in names if _are_times(table.frame[name].head(FIRST_ROWS), name)]
    return times[0] if table.header and len(times) == 1 else None


def _are_times(cells: pl.Series, name: str) -> bool:
    """Dates, or numbers that are seconds or milliseconds of the years from 1980 to 2100."""
    try:
        seconds = to_times(cells if cells.dtype == pl.String else cells.to_numpy(), name, Origin())
    except DataError:
        return False
    typical = float(np.median(seconds)) if len(seconds) else 0.0
    return any(EARLIEST < typical / unit < LATEST for unit in (1, 1000))


def _table(source: str, reading: ReaderOptions) -> Table:
    named = [name for name in reading.values() if isinstance(name, str)]
    return read_table(
        source,
        names=named,
        header=reading.get("header"),
        separator=reading.get("separator"),
        encoding=reading.get("encoding", "utf-8"),
    )


def _position(name: str | None, table: Table | None) -> str | int | None:
    """A column of a file without header is called by its position."""
    if name is None or table is None or table.header or not name.isdecimal():
        return name
    return int(name)


def _of_items(frame: pl.DataFrame, item: str, columns: Sequence[str]) -> list[str]:
    """Those columns that say something about the item: the same in all of its rows."""
    if not columns:
        return []
    values = frame.group_by(item).agg(pl.col(*columns).drop_nulls().n_unique())
    return [column for column in columns if (values[column] <= 1).all()]


def _floors(described: Mapping[str, NDArray[Any]], log: Interactions) -> Iterator[FloorProposal]:
    """For each column of few values: its smallest groups get at least half of what they had."""
    counts = log.item_counts()
    for column, cells in described.items():
        values = attribute_values(cells)
        if not _may_be_groups(values, log.n_items):
            continue
        shares = {v: counts[attribute_group(cells, [v])].sum() / counts.sum() for v in values}
        smallest = sorted(values, key=lambda value: (shares[value], value))
        # At most a third of the values, so that a floor is for few.
        named = tuple(smallest[: min(MOST_NAMED, max(1, len(values) // 3))])
        of_log = float(counts[attribute_group(cells, named)].sum() / counts.sum())
        floor = Limit(
            GroupOf(column, named),
            # Half of the share, rounded down to whole percent.
            math.floor(50 * of_log) / 100,
            is_floor=True,
            weighing=Weighing.LOG,
        )
        if floor.share > 0:
            yield FloorProposal(floor, of_log, len(values))


def _may_be_groups(values: Sequence[str], n_items: int) -> bool:
    """Few values, each of several items, and no measurements such as a price."""
    few = FEWEST_VALUES <= len(values) <= min(MOST_VALUES, n_items // 2)
    return few and not all(MEASUREMENT.fullmatch(value) for value in values)


def _down(share: float) -> float:
    """To a multiple of the step."""
    return round(math.floor(share / STEP + 1e-9) * STEP, 2)


# ---- The proposal as the text of a fairhorizon.toml ----------------------------------------------

ROLES = {"user": "user", "session": "session", "item": "item", "rating": "rating"}
ROLES |= {"timestamp": "time", "weight": "weight"}
HEAD = """\
# Written by `{command}`.
# docs/config.md explains every key.
# {source}: {rows:,} interactions of {users:,} users with {items:,} items.
#
#   fairhorizon fit --config {file} --out runs/a
#   fairhorizon evaluate runs/a --config {file}
#   fairhorizon recommend runs/a --config {file} --out lists.csv

method = "fcpo"
seed = 0

# Limits on what is shown (docs/limits.md). The popular items, a fifth of the catalogue, have
# {popular:.1f} % of the training log; {reason}
# weights=log: a showing counts 1 / log2(1 + rank), so that a limit is not kept by the last places.
limits = ["""
BINDS = "their limit is halfway between that and a fifth."
DOES_NOT_BIND = "they need no limit, so it is commented out."
FLOOR = """\
    # {column} has {n} values, and those named here have {share:.1f} % of the log. A floor of half
    # of that keeps a ranking from showing them less and less. Remove the # in front to ask for it.
    # {limit},"""
SETTINGS = """
# Settings of the method, as --set has them; `fairhorizon methods fcpo` lists them.
# [settings]
# rounds = 50"""


@dataclass(frozen=True)
class ConfigOrigin:
    """What a config is written from and where to."""

    path: Path  # of the config
    source: str  # of the log, as it was typed
    item_table: Path | None
    reading: ReaderOptions
    command: str

    def seen_from(self, path: Path) -> str:
        """A path relative to the folder of the config if it is below it, else absolute."""
        whole, folder = path.resolve(), self.path.resolve().parent
        return str(whole.relative_to(folder) if whole.is_relative_to(folder) else whole)


def write_config(origin: ConfigOrigin, proposal: ConfigProposal) -> None:
    """A file that works as it is."""
    write_text(origin.path, config_text(origin, proposal))


def config_text(origin: ConfigOrigin, proposal: ConfigProposal) -> str:
    head = HEAD.format(
        command=origin.command,
        source=origin.source,
        file=origin.path.name,
        rows=proposal.rows,
        users=proposal.users,
        items=proposal.items,
        popular=100 * proposal.popular_of_log,
        reason=BINDS if proposal.popular_binds else DOES_NOT_BIND,
    )
    parts = [_limits(proposal), _data(origin), _columns(proposal), _groups(origin, proposal)]
    lines = [head, *(line for part in parts for line in part), SETTINGS]
    return "\n".join(lines) + "\n"


def _limits(proposal: ConfigProposal) -> Iterator[str]:
    popular = f"{_written(str(proposal.popular))},"
    yield f"    {popular}" if proposal.popular_binds else f"    # {popular}"
    for floor in proposal.floors:
        yield FLOOR.format(
            column=_commented(floor.limit.group.column),
            n=floor.n_values,
            share=100 * floor.of_log,
            limit=_written(str(floor.limit)),
        )
    yield "]"


def _data(origin: ConfigOrigin) -> Iterator[str]:
    is_file = not is_named(origin.source) and Path(origin.source).exists()
    source = origin.seen_from(Path(origin.source)) if is_file else origin.source
    yield from ("", "[data]", f"source = {_written(source)}")
    given = origin.reading
    for key in ("header", "separator"):
        if (value := given.get(key)) is not None:
            yield f"{key} = {_written(value)}"
    if (encoding := given.get("encoding", "utf-8")) != "utf-8":
        yield f"encoding = {_written(encoding)}"


def _columns(proposal: ConfigProposal) -> Iterator[str]:
    if not proposal.columns:  # of a named set
        return
    yield from ("", "[columns]")
    for role, key in ROLES.items():
        if role not in proposal.columns:  # not asked for, or it has another role
            continue
        name = proposal.columns[role]
        yield f"# no {key}" if name is None else f"{key} = {_written(name)}"
    if proposal.others:
        yield f"# not used: {', '.join(map(_commented, proposal.others))}"


def _groups(origin: ConfigOrigin, proposal: ConfigProposal) -> Iterator[str]:
    if origin.item_table is None:
        return
    yield from ("", "[groups]", f"item_table = {_written(origin.seen_from(origin.item_table))}")
    if proposal.item_columns:
        yield f"# its columns, for limits: {', '.join(map(_commented, proposal.item_columns))}"


def _written(value: Any) -> str:
    """As TOML, which writes these values as JSON does; but a character 127 is escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _commented(name: str) -> str:
    """Without line breaks, which would end the comment."""
    return " ".join(name.split())
