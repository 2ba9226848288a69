"""fairhorizon ledger: the budgets of all limits, counted once more."""

import sys
from typing import TYPE_CHECKING

import typer

from fairhorizon.cli.database_option import DatabaseUrl
from fairhorizon.cli.service_extra import needs_service

if TYPE_CHECKING:
    from rich.table import Table

    from fairhorizon.service.budget.recount import Recount

DIFFERS = 1  # exit code
WIDE = 200  # characters of a line that no terminal cuts
HEADINGS = (
    *("account", "limit", "window", "group", "asked", "shown", "used", "pending"),
    *("charged", "in leases", "recounted", "agrees"),
)


def ledger(database: DatabaseUrl) -> None:
    """Print every account, and count it once more from recorded lists alone.

    Counts are showings. Exit code 1: an account is not what lists say.
    """
    with needs_service("ledger"):
        from rich.console import Console

        from fairhorizon.service.budget.recount import recounted
        from fairhorizon.service.store.migrating import existing

    with existing(database) as source, source.reading() as connection:
        found = recounted(connection)
    Console(width=None if sys.stdout.isatty() else WIDE).print(table_of(found))
    wrong = sum(not one.agrees for one in found)
    if wrong:
        typer.echo(f"accounts that are not what the lists say: {wrong:,} of {len(found):,}")
        raise typer.Exit(DIFFERS)
    typer.echo(f"accounts that are what the lists say: all {len(found):,}")


def table_of(found: "list[Recount]") -> "Table":
    """A row for every account; recounted is used, shown and pending."""
    from rich.table import Table

    table = Table(*HEADINGS[:4], box=None)
    for heading in HEADINGS[4:]:
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
    from fairhorizon.service.budget.units import showings

    return f"{showings(units):,.6f}".rstrip("0").rstrip(".")
