"""The database that commands of the service work on."""

from typing import Annotated

import typer

VARIABLE = "FAIRHORIZON_DATABASE"

DatabaseUrl = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        envvar=VARIABLE,
        help="Database of the service: postgresql://USER@HOST/NAME, sqlite:///FILE or the path of "
        "a SQLite file. An address with a password is better kept in the environment.",
    ),
]
