"""Options for logs of other kinds: weights, sessions, places."""

from typing import Annotated

import typer

FILE = "Reading a file of your own"

WeightColumn = Annotated[
    str | None,
    typer.Option(
        "--weight",
        help="Column that says how much, such as a quantity or a time spent; those of repeated "
        "rows add up. rows: how often the user took the item.",
        show_default="every interaction counts once",
        rich_help_panel=FILE,
    ),
]
SessionColumn = Annotated[
    str | None,
    typer.Option(
        "--session",
        help="Column with the session, of a log without users. A session is read as a user.",
        rich_help_panel=FILE,
    ),
]
AreaKm = Annotated[
    float,
    typer.Option(
        "--area-km",
        min=0.001,
        help="Width of the areas, in kilometres, that items with latitude and longitude are in, "
        "for groups such as area:each.",
        rich_help_panel=FILE,
    ),
]
