"""Commands of the service: serve, keys, load, export, backup, restore, forget, ledger."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options
from fairhorizon.cli.progress import Progress
from fairhorizon.errors import ConfigError
from fairhorizon.files import check_file, claimed
from fairhorizon.service.settings import ID_LENGTH, Role
from fairhorizon.vocabulary import ListValue

if TYPE_CHECKING:
    from rich.table import Table

    from fairhorizon.service.admin.bulk_load import FileColumns, LoadedRows
    from fairhorizon.service.budget.recount import Recount
    from fairhorizon.service.settings import ServiceSettings

PACKAGES = ("alembic", "fastapi", "granian", "prometheus_client", "psycopg", "sqlalchemy")
VARIABLE = "FAIRHORIZON_DATABASE"
Database = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        envvar=VARIABLE,
        help="Database of the service: postgresql://USER@HOST/NAME, sqlite:///FILE or the path of "
        "a SQLite file. An address with a password is better kept in the environment.",
    ),
]


ITEMS, USERS, LOG = "items", "users", "log"  # what can be loaded
LONGEST_TYPE = 64
LEDGER_DIFFERS = 1  # exit code
LEDGER_WIDTH = 200  # characters of a line that no terminal cuts
LEDGER_HEADINGS = (
    *("account", "limit", "window", "group", "asked", "shown", "used", "pending"),
    *("charged", "in leases", "recounted", "agrees"),
)


@contextmanager
def needs_service(command: str) -> Iterator[None]:
    """Say what to install where a package of the service is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in PACKAGES:
            raise
        raise ConfigError(
            f"{command}: the service needs further packages, {error.name} is missing (pip install "
            "'fairhorizon[service]')"
        ) from None


def serve(
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Folder of a model of the whole log (fit --all).",
            callback=options.fitted_run,
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            envvar=VARIABLE,
            help="postgresql://USER@HOST/NAME, sqlite:///FILE or the path of a SQLite file.",
            show_default="service.db in the run folder",
        ),
    ] = None,
    database_file: Annotated[
        Path | None,
        typer.Option(
            "--database-file",
            metavar="FILE",
            envvar=f"{VARIABLE}_FILE",
            help="File that holds the address of the database, for one with a password.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at. Others than this machine's need keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8088,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that serve.")] = 1,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="LIMIT",
            help="Keep this limit, such as 'popular<=0.4', if it is not kept already. Repeatable.",
            show_default="those of the run, in a new database",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Take limits and the table [service] from this file, such as fairhorizon.toml.",
        ),
    ] = None,
    value: Annotated[
        ListValue | None,
        typer.Option(
            "--value",
            help="What lists make as much of as they can. ndcg: what users like now. long: every "
            "user's values count by what a like of theirs is worth for later; for a model that was "
            "fitted with --answers.",
            show_default="that of the table [service], else ndcg",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", metavar="FILE", help="Certificate, for HTTPS."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")
    ] = None,
) -> None:
    """Serve lists over HTTP under limits on all showings, with a dashboard at /.

    Lists are recorded before they are answered. Exposure budgets are kept in
    the database, across restarts and any number of workers and machines.
    """
    with needs_service("serve"):
        from fairhorizon.service.serving import Address
        from fairhorizon.service.serving import serve as serve_until_stopped
    if (tls_certificate is None) != (tls_key is None):
        raise typer.BadParameter("a certificate and its key go together", param_hint="--tls-key")
    settings, limits, items = _configured(config)
    if value is not None:
        settings = settings.model_copy(update={"value": value})
    serve_until_stopped(
        _url(database, database_file, run),
        settings,
        run=run,
        limits=tuple(limit or limits),
        items=items,
        address=Address(host, port, tls_certificate, tls_key),
        workers=workers,
        say=lambda line: typer.echo(line, err=True),
    )


def _url(database: str | None, file: Path | None, run: Path | None) -> str:
    if database is not None:
        return database
    if file is not None:
        return file.read_text(encoding="utf-8").strip()
    if run is None:
        raise ConfigError("serve: there is nothing to serve (give --run RUN, or --database URL)")
    return str(run / "service.db")


def _configured(
    file: Path | None,
) -> "tuple[ServiceSettings, tuple[str, ...], tuple[Path, FileColumns] | None]":
    """The settings of the service, the limits and the item table that a config file has."""
    from fairhorizon.service.settings import ServiceSettings
    from fairhorizon.settings import SettingsError, changed

    if file is None:
        return ServiceSettings(), (), None
    from fairhorizon.config_file import read_config
    from fairhorizon.data.tables import UTF_8

    content = read_config(file)
    items = None
    if content.groups.item_table is not None:
        with needs_service("serve"):
            from fairhorizon.service.admin.bulk_load import FileColumns
        columns = FileColumns(
            item=content.columns.item,
            encoding=content.data.encoding or UTF_8,
            separator=content.data.separator,
        )
        items = Path(content.groups.item_table), columns
    try:
        return changed(ServiceSettings(), content.service), content.limits, items
    except SettingsError as error:
        raise ConfigError(f"{file} [service]: {error}") from None


key_commands = typer.Typer(help="Make, list and end the keys that the service is called with.")


@key_commands.command()
def make(
    database: Database,
    name: Annotated[str, typer.Option(help="What it is for, such as the shop's web site.")],
    role: Annotated[
        Role,
        typer.Option(
            help="read: ask for lists. feedback: also say what was shown and taken. admin: all."
        ),
    ],
) -> None:
    """Make a key and print it, once: only a hash of it is kept."""
    with needs_service("keys"):
        from fairhorizon.service.store import keys
        from fairhorizon.service.store.migrating import opened, prepare

    if not 1 <= len(name.strip()) <= ID_LENGTH:
        raise ConfigError(f"--name {name!r}: give 1 to {ID_LENGTH} characters")
    with opened(database) as target:
        prepare(target)
        with target.writing() as connection:
            made = keys.make(target, connection, name.strip(), role)
    typer.echo(f"a key for {role.value}, {name.strip()}; it is not shown again:", err=True)
    typer.echo(made)


@key_commands.command("list")
def list_keys(database: Database) -> None:
    """Print all keys, without their secrets."""
    with needs_service("keys"):
        from fairhorizon.service.store import keys
        from fairhorizon.service.store.migrating import existing

    with existing(database) as target, target.reading() as connection:
        rows = [row._asdict() for row in keys.every(connection)]
    if not rows:
        typer.echo("no keys", err=True)
    for row in rows:
        ended = "" if row["ended_at"] is None else f"  ended {_day(row['ended_at'])}"
        made = _day(row["created_at"])
        typer.echo(f"{row['id']}  {row['role']:<8}  made {made}{ended}  {row['name']}")


@key_commands.command()
def end(
    number: Annotated[str, typer.Argument(metavar="ID", help="Id of the key, from keys list.")],
    database: Database,
) -> None:
    """End a key: it opens nothing any more."""
    with needs_service("keys"):
        from fairhorizon.service.store import keys
        from fairhorizon.service.store.migrating import existing

    if number.startswith(f"{keys.PREFIX}_"):  # the whole key, whose secret is not to be printed
        number = number.split("_")[1]
    with existing(database) as target, target.writing() as connection:
        if not keys.end(target, connection, number):
            raise ConfigError(f"{number}: no key in use has this id (see `fairhorizon keys list`)")
    typer.echo(f"{number} has ended", err=True)


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def load(
    database: Database,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="CSV, TSV or Parquet files whose names begin with items, users or log.",
            show_default=False,
        ),
    ] = None,
    items: Annotated[
        list[Path] | None,
        typer.Option("--items", metavar="FILE", help="Table with a row per item."),
    ] = None,
    users: Annotated[
        list[Path] | None,
        typer.Option("--users", metavar="FILE", help="Table with a row per user."),
    ] = None,
    log: Annotated[
        list[Path] | None, typer.Option("--log", metavar="FILE", help="Log with a row per event.")
    ] = None,
    kind: Annotated[str, typer.Option("--type", help="Type of feedback that the log is.")] = "take",
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            help="Column of the log with the time: seconds since 1970, or ISO dates.",
            rich_help_panel=options.FILE,
        ),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--value",
            help="Column of the log with the rating, or with another weight of the event.",
            show_default="found by its name, such as rating, value or weight",
            rich_help_panel=options.FILE,
        ),
    ] = None,
    header: options.Header = None,
    separator: options.Separator = None,
    encoding: options.Encoding = "utf-8",
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
    sorted_files = _files_by_kind(files or (), {ITEMS: items, USERS: users, LOG: log})
    columns = FileColumns(
        user=options.column(user),
        item=options.column(item),
        time=options.column(time),
        value=options.column(value),
        header=header,
        separator="\t" if separator == "\\t" else separator,
        encoding=encoding,
    )
    item_tables = [(file, read_items(file, columns)) for file in sorted_files[ITEMS]]
    user_tables = [(file, read_users(file, columns)) for file in sorted_files[USERS]]
    logs = [(file, read_log(file, columns, kind)) for file in sorted_files[LOG]]
    with opened(database) as target, Progress() as bar:
        prepare(target)
        load = BulkLoad(
            target, lambda done, of: bar.line(f"{done:,} of {of:,} rows", done=done, total=of)
        )
        said = [
            *(_summary(file, ITEMS, load.items(some)) for file, some in item_tables),
            *(_summary(file, USERS, load.users(some)) for file, some in user_tables),
            *(_summary(file, "events", load.log(rows)) for file, rows in logs),
        ]
    for line in said:
        typer.echo(line)


def _files_by_kind(
    files: Sequence[Path], given: dict[str, list[Path] | None]
) -> dict[str, list[Path]]:
    """The files of each kind: those given by options, and others by how their names begin."""
    found = {kind: list(files_of or ()) for kind, files_of in given.items()}
    for file in files:
        kind = next((one for one in found if file.stem.lower().startswith(one)), None)
        if kind is None:
            raise ConfigError(
                f"{file}: is it a table of items, a table of users or a log? "
                f"(give --items {file}, --users {file} or --log {file})"
            )
        found[kind].append(file)
    if not any(found.values()):
        raise ConfigError("there is nothing to load (give --items, --users or --log FILE)")
    return found


def _summary(file: Path, what: str, done: "LoadedRows") -> str:
    """How many rows were new, and what became of the others."""
    others = {
        "changed": done.changed,
        "known already": done.same,
        "of forgotten users left out": done.left_out,
    }
    more = "".join(f", {number:,} {name}" for name, number in others.items() if number)
    return f"{file}: {done.new:,} new {what}{more}"


def export(
    database: Database,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder for lists.parquet, impressions.parquet, feedback.parquet and "
            "answers.parquet.",
        ),
    ],
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="ISO date or time (UTC) to begin with."),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="ISO date or time (UTC) to end before."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="Type of feedback to write to feedback.parquet, such as take. Repeatable.",
            show_default="all",
        ),
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option(
            "--read",
            help="Type of feedback that only says that an item was seen. Repeatable.",
            show_default="read",
        ),
    ] = None,
    negative: Annotated[
        list[str] | None,
        typer.Option(
            "--negative",
            help="Type of feedback that says that an item was not liked. Repeatable.",
            show_default="dislike, hide, report",
        ),
    ] = None,
    with_log: Annotated[
        bool,
        typer.Option(
            "--with-log",
            help="Also write log.parquet, the log of the model that is served and all that users "
            "took since, and items.parquet: what the next `fit` needs.",
        ),
    ] = False,
) -> None:
    """Write what was shown and what users did, as one state of the database.

    lists.parquet is for `fairhorizon audit`, feedback.parquet for `fairhorizon
    fit` (with --type: a log for a fit has what users took). impressions.parquet
    has every showing, also those to users who were forgotten, and says which
    were confirmed and answered. answers.parquet has the showings to users by
    name and whether they were liked, for `fairhorizon fit --answers`.
    """
    with needs_service("export"):
        from fairhorizon.service.admin.export import Wanted
        from fairhorizon.service.admin.export import export as write
        from fairhorizon.service.settings import ServiceSettings
        from fairhorizon.service.store.migrating import existing

    first, last = _moment("--from", begin), _moment("--to", end)
    if first is not None and last is not None and first >= last:
        raise ConfigError(f"--from {begin} --to {end}: there is no time between them (swap them)")
    seen = tuple(read or ServiceSettings().read)
    disliked = tuple(negative or ServiceSettings().negative)
    with existing(database) as source, claimed(out):
        wanted = Wanted(first, last, tuple(types or ()), seen, disliked, with_log)
        found = write(source, out, wanted)
    for name, rows in found.rows.items():
        typer.echo(f"{out / name}: {rows:,} rows")
    if len(found.types) > 1:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in sorted(found.types.items()))
        typer.echo(f"note: the feedback is of several types: {kinds} (--type chooses)", err=True)


def _moment(option: str, text: str | None) -> float | None:
    """Seconds since 1970 of an ISO date or time; without time zone it is UTC."""
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(
            f"{option} {text!r}: is no date (give one such as 2026-11-17 or 2026-11-17T12:00:00Z)"
        ) from None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def backup(
    database: Database,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE.zip", help="File to write.", callback=options.one_file),
    ],
) -> None:
    """Write all tables of the service to one file, while it goes on serving.

    `fairhorizon restore` makes a database of it, of either kind. The models
    themselves are not in it: keep their folders too. The file has ids of people
    and secrets of the service, and only you may read it.
    """
    with needs_service("backup"):
        from fairhorizon.service.admin.backup import back_up
        from fairhorizon.service.store.migrating import existing

    check_file(out)
    with existing(database) as source:
        rows = back_up(source, out)
    typer.echo(f"{out}: {sum(rows.values()):,} rows of {len(rows)} tables, {rows['lists']:,} lists")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE.zip", help="File of a backup.")],
    database: Database,
) -> None:
    """Fill a new, empty database with a backup.

    All of it or nothing. Counts and budgets go on where they were; leases of
    replicas that served at the time are given back.
    """
    with needs_service("restore"):
        from fairhorizon.service.admin.backup import restore as fill
        from fairhorizon.service.store.migrating import opened
        from fairhorizon.service.store.state import all_models

    with opened(database) as target:
        rows = fill(target, file)
        with target.reading() as connection:
            known = [row.folder for row in all_models(connection)]
        typer.echo(f"{target}: {sum(rows.values()):,} rows, {rows['lists']:,} lists")
    for folder in known:
        if not Path(folder).is_dir():
            typer.echo(f"note: {folder}: this model is not here (copy its folder)", err=True)


def forget(
    user: Annotated[str, typer.Argument(metavar="USER", help="Id of the user.")],
    database: Database,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the description and all feedback of a user, and their name from lists.

    Counts and budgets stay as they are. From now on the user is unknown,
    although models may still know them. Backups and exports that were made
    before are not changed.
    """
    with needs_service("forget"):
        from fairhorizon.service.admin.forget import remove
        from fairhorizon.service.store.migrating import existing

    with existing(database) as target:
        if not yes and sys.stdin.isatty() and not _agreed(f"Remove {user!r} from {target}?"):
            raise ConfigError(f"{user}: nothing was removed (answer y, or give --yes)")
        rows, fitted, unreadable = remove(target, user)
    typer.echo(
        f"{user}: removed {rows['users']:,} description, {rows['feedback']:,} events, and the name "
        f"from {rows['lists']:,} lists"
    )
    for folder in fitted:
        typer.echo(f"{folder}: its log has the user (drop their rows, and fit it again)")
    for folder in unreadable:
        typer.echo(f"{folder}: could not be read (if its log has the user, fit it again)")


def _agreed(question: str) -> bool:
    """Whether somebody at the terminal says yes; Ctrl-C and the end of input are a no."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def ledger(database: Database) -> None:
    """Print every account, and count it once more from recorded lists alone.

    Counts are showings. Exit code 1: an account is not what lists say.
    """
    with needs_service("ledger"):
        from rich.console import Console

        from fairhorizon.service.budget.recount import recounted
        from fairhorizon.service.store.migrating import existing

    with existing(database) as source, source.reading() as connection:
        found = recounted(connection)
    Console(width=None if sys.stdout.isatty() else LEDGER_WIDTH).print(_ledger_table(found))
    wrong = sum(not one.agrees for one in found)
    if wrong:
        typer.echo(f"accounts that are not what the lists say: {wrong:,} of {len(found):,}")
        raise typer.Exit(LEDGER_DIFFERS)
    typer.echo(f"accounts that are what the lists say: all {len(found):,}")


def _ledger_table(found: "list[Recount]") -> "Table":
    """A row for every account; recounted is used, shown and pending."""
    from rich.table import Table

    table = Table(*LEDGER_HEADINGS[:4], box=None)
    for heading in LEDGER_HEADINGS[4:]:
        table.add_column(heading, justify="right")
    for one in found:
        floor = ">=" if one.limit.is_floor else "<="
        again = one.found
        table.add_row(
            "-" if one.account is None else str(one.account),
            str(one.limit),
            one.window,
            one.group,
            f"{floor}{one.limit.share:g}",
            *(_showings(units) for units in (one.stored.shown, one.stored.used)),
            *(_showings(units) for units in (one.stored.pending, one.charged, one.left)),
            " / ".join(_showings(units) for units in (again.used, again.shown, again.pending)),
            "yes" if one.agrees else "NO",
        )
    return table


def _showings(units: int) -> str:
    from fairhorizon.service.budget.rules import showings

    return f"{showings(units):,.6f}".rstrip("0").rstrip(".")
