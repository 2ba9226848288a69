"""fairhorizon keys: who may call the service, and what they may do."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from fairhorizon.cli.database_option import DatabaseUrl
from fairhorizon.cli.service_extra import needs_service
from fairhorizon.errors import ConfigError
from fairhorizon.service.vocabulary import ID_LENGTH, Role

key_commands = typer.Typer(help="Make, list and end the keys that the service is called with.")


@key_commands.command()
def make(
    database: DatabaseUrl,
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
def list_keys(database: DatabaseUrl) -> None:
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
    database: DatabaseUrl,
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
