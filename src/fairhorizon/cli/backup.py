"""fairhorizon backup and restore: the service's database in one file."""

from pathlib import Path
from typing import Annotated

import typer

from fairhorizon.cli.database_option import DatabaseUrl
from fairhorizon.cli.folders import check_file
from fairhorizon.cli.service_extra import needs_service


def backup(
    database: DatabaseUrl,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.zip", help="File to write.")],
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
    database: DatabaseUrl,
) -> None:
    """Fill a new, empty database with a backup.

    All of it or nothing. Counts and budgets go on where they were; leases of
    replicas that served at the time are given back.
    """
    with needs_service("restore"):
        from fairhorizon.service.admin.backup import restore as fill
        from fairhorizon.service.store import models
        from fairhorizon.service.store.migrating import opened

    with opened(database) as target:
        rows = fill(target, file)
        with target.reading() as connection:
            known = [row.folder for row in models.every(connection)]
        typer.echo(f"{target}: {sum(rows.values()):,} rows, {rows['lists']:,} lists")
    for folder in known:
        if not Path(folder).is_dir():
            typer.echo(f"note: {folder}: this model is not here (copy its folder)", err=True)
