"""Options of commands that serve a run."""

from pathlib import Path
from typing import Annotated

import typer


def a_share(level: float | None) -> float | None:
    if level is None or 0 < level <= 1:
        return level
    raise typer.BadParameter(f"{level:g} is no share of what is shown (give one above 0, up to 1)")


AlphaPrime = Annotated[
    float | None,
    typer.Option(
        "--alpha-prime",
        help="Serve at this limit: largest share of the limited group in the lists, at most 1.",
        show_default="that of the fit",
        callback=a_share,
    ),
]
RunFolder = Annotated[Path, typer.Argument(help="Folder that fit has written.")]
