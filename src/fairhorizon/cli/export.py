"""fairhorizon export: what was shown and what users did, as Parquet files."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fairhorizon.cli.database_option import DatabaseUrl
from fairhorizon.cli.folders import claimed
from fairhorizon.cli.service_extra import needs_service
from fairhorizon.errors import ConfigError

Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="Folder for lists.parquet, impressions.parquet, feedback.parquet and answers.parquet.",
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="ISO date or time (UTC) to begin with."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="ISO date or time (UTC) to end before."),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        help="Type of feedback to write to feedback.parquet, such as take. Repeatable.",
        show_default="all",
    ),
]
ReadTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--read",
        help="Type of feedback that only says that an item was seen. Repeatable.",
        show_default="read",
    ),
]
NegativeTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--negative",
        help="Type of feedback that says that an item was not liked. Repeatable.",
        show_default="dislike, hide, report",
    ),
]


def export(
    database: DatabaseUrl,
    out: Out,
    begin: From = None,
    end: To = None,
    types: Types = None,
    read: ReadTypes = None,
    negative: NegativeTypes = None,
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

    first, last = moment("--from", begin), moment("--to", end)
    if first is not None and last is not None and first >= last:
        raise ConfigError(f"--from {begin} --to {end}: there is no time between them (swap them)")
    seen = tuple(read or ServiceSettings().read)
    disliked = tuple(negative or ServiceSettings().negative)
    with existing(database) as source, claimed(out):
        found = write(source, out, Wanted(first, last, tuple(types or ()), seen, disliked))
    for name, rows in found.rows.items():
        typer.echo(f"{out / name}: {rows:,} rows")
    if len(found.types) > 1:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in sorted(found.types.items()))
        typer.echo(f"note: the feedback is of several types: {kinds} (--type chooses)", err=True)


def moment(option: str, text: str | None) -> float | None:
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
