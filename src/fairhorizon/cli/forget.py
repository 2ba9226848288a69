"""fairhorizon forget: remove what the service knows of a person."""

import sys
from typing import Annotated

import typer

from fairhorizon.cli.database_option import DatabaseUrl
from fairhorizon.cli.service_extra import needs_service
from fairhorizon.errors import ConfigError


def forget(
    user: Annotated[str, typer.Argument(metavar="USER", help="Id of the user.")],
    database: DatabaseUrl,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the description and all feedback of a user, and their name from lists.

    Counts and budgets stay as they are. From now on the user is a stranger,
    although models may still know them. Backups and exports that were made
    before are not changed.
    """
    with needs_service("forget"):
        from fairhorizon.service.admin.forget import remove
        from fairhorizon.service.store.migrating import existing

    with existing(database) as target:
        if not yes and sys.stdin.isatty() and not agreed(f"Remove {user!r} from {target}?"):
            raise ConfigError(f"{user}: nothing was removed (answer y, or give --yes)")
        found = remove(target, user)
    rows = found.rows
    typer.echo(
        f"{user}: removed {rows['users']:,} description, {rows['feedback']:,} events, and the name "
        f"from {rows['lists']:,} lists"
    )
    for folder in found.fitted_on:
        typer.echo(f"{folder}: its log has the user (drop their rows, and fit it again)")
    for folder in found.unreadable:
        typer.echo(f"{folder}: could not be read (if its log has the user, fit it again)")


def agreed(question: str) -> bool:
    """Whether somebody at the terminal says yes; Ctrl-C and the end of input are a no."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False
