"""fairhorizon load: fill the service's database with items, users and a log."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.database_option import DatabaseUrl
from fairhorizon.cli.progress import Progress
from fairhorizon.cli.service_extra import needs_service
from fairhorizon.errors import ConfigError

if TYPE_CHECKING:
    from fairhorizon.service.admin.bulk_load import LoadedRows

ITEMS, USERS, LOG = "items", "users", "log"
KINDS = (ITEMS, USERS, LOG)
LONGEST_TYPE = 64

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="CSV, TSV or Parquet files whose names begin with items, users or log.",
        show_default=False,
    ),
]
ItemFiles = Annotated[
    list[Path] | None, typer.Option("--items", metavar="FILE", help="Table with a row per item.")
]
UserFiles = Annotated[
    list[Path] | None, typer.Option("--users", metavar="FILE", help="Table with a row per user.")
]
LogFiles = Annotated[
    list[Path] | None, typer.Option("--log", metavar="FILE", help="Log with a row per event.")
]
EventType = Annotated[str, typer.Option("--type", help="Type of feedback that the log is.")]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        "--time",
        help="Column of the log with the time: seconds since 1970, or ISO dates.",
        rich_help_panel=shared.FILE,
    ),
]
ValueColumn = Annotated[
    str | None,
    typer.Option(
        "--value",
        help="Column of the log with the rating, or with another weight of the event.",
        show_default="found by its name, such as rating, value or weight",
        rich_help_panel=shared.FILE,
    ),
]


def load(
    database: DatabaseUrl,
    files: Files = None,
    items: ItemFiles = None,
    users: UserFiles = None,
    log: LogFiles = None,
    kind: EventType = "take",
    user: shared.UserColumn = None,
    item: shared.ItemColumn = None,
    time: TimeColumn = None,
    value: ValueColumn = None,
    header: shared.Header = None,
    separator: shared.Separator = None,
    encoding: shared.Encoding = "utf-8",
) -> None:
    """Fill the service's database with tables of items and users and with a log.

    Of an item, the columns categories (several with | between them), hidden and
    comment are what they say; every other column is a label that limits may be
    about. A bad row is reported with its line, and nothing is written.

    The same file can be loaded again: rows that are there are recognised, those
    of a log by their content.
    """
    with needs_service("load"):
        from fairhorizon.service.admin.bulk_load import (
            BulkLoad,
            FileColumns,
            read_items,
            read_log,
            read_users,
        )
        from fairhorizon.service.store.migrating import opened, prepare

    if not 1 <= len(kind) <= LONGEST_TYPE:
        raise ConfigError(f"--type {kind!r}: give 1 to {LONGEST_TYPE} characters")
    sorted_files = apart(files or (), {ITEMS: items, USERS: users, LOG: log})
    columns = FileColumns(
        user=shared.column(user),
        item=shared.column(item),
        time=shared.column(time),
        value=shared.column(value),
        header=header,
        separator="\t" if separator == "\\t" else separator,
        encoding=encoding,
    )
    item_tables = [(file, read_items(file, columns)) for file in sorted_files[ITEMS]]
    user_tables = [(file, read_users(file, columns)) for file in sorted_files[USERS]]
    logs = [(file, read_log(file, columns, kind)) for file in sorted_files[LOG]]
    with opened(database) as target, Progress() as bar:
        prepare(target)
        filling = BulkLoad(
            target, lambda done, of: bar.line(f"{done:,} of {of:,} rows", done=done, total=of)
        )
        said = [
            *(summary(file, ITEMS, filling.items(some)) for file, some in item_tables),
            *(summary(file, USERS, filling.users(some)) for file, some in user_tables),
            *(summary(file, "events", filling.log(rows)) for file, rows in logs),
        ]
    for line in said:
        typer.echo(line)


def apart(files: Sequence[Path], given: dict[str, list[Path] | None]) -> dict[str, list[Path]]:
    """The files of each kind: those given by options, and others by how their names begin."""
    found = {kind: list(given[kind] or ()) for kind in KINDS}
    for file in files:
        kind = next((one for one in KINDS if file.stem.lower().startswith(one)), None)
        if kind is None:
            raise ConfigError(
                f"{file}: is it a table of items, a table of users or a log? "
                f"(give --items {file}, --users {file} or --log {file})"
            )
        found[kind].append(file)
    if not any(found.values()):
        raise ConfigError("there is nothing to load (give --items, --users or --log FILE)")
    return found


def summary(file: Path, what: str, done: "LoadedRows") -> str:
    """How many rows were new, and what became of the others."""
    others = {
        "changed": done.changed,
        "known already": done.same,
        "of forgotten users left out": done.left_out,
    }
    more = "".join(f", {number:,} {name}" for name, number in others.items() if number)
    return f"{file}: {done.new:,} new {what}{more}"
