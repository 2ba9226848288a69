"""fairhorizon init: a config for a log, to be changed and used by all other commands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import check_file
from fairhorizon.cli.typed import typed_command
from fairhorizon.errors import ConfigError

if TYPE_CHECKING:
    from fairhorizon.data.readers import ReaderOptions

Table = Annotated[
    Path | None,
    typer.Option(
        "--item-table", help="File with a row per item, whose columns limits may be about."
    ),
]
Out = Annotated[Path, typer.Option("--out", help="File to write.")]


@shared.takes_reader
def init(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="LOG", help=shared.SOURCE)],
    reading: "ReaderOptions",
    item_table: Table = None,
    out: Out = Path("fairhorizon.toml"),
    cache_dir: shared.CacheDir = None,
) -> None:
    """Write a commented fairhorizon.toml for a log, which all commands take as --config.

    It has the columns that were recognised and a limit on popular items, chosen
    by how much of the log they have. For columns of few values, such as the
    seller, it proposes a floor for the smallest groups.
    """
    from fairhorizon.report.proposal import ROLES, ConfigOrigin, write_config
    from fairhorizon.studies.proposal import propose

    if out.exists():
        raise ConfigError(f"{out}: already exists (name another --out, or remove it)")
    check_file(out)
    found = propose(source, reading, item_table, cache_dir)
    write_config(ConfigOrigin(out, source, item_table, reading, typed_command(context)), found)
    known = [f"{ROLES[role]} {name!r}" for role, name in found.columns.items() if name is not None]
    columns = f"; {', '.join(known)}" if known else ""
    typer.echo(f"{out}: {found.rows:,} interactions of {found.users:,} users{columns}")
    typer.echo(f"next: fairhorizon fit --config {out} --out runs/a")
