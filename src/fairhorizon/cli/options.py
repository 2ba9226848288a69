"""Options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.errors import ConfigError

if TYPE_CHECKING:
    from fairhorizon.experiments.runs import DataSpec

Data = Annotated[
    str, typer.Option("--data", help="A named set (ml-100k, ml-1m, synthetic) or a file.")
]
CacheDir = Annotated[
    Path | None, typer.Option("--cache-dir", help="Where named sets are kept.", show_default=False)
]
UserColumn = Annotated[
    str | None, typer.Option("--user", help="Column of the user: a name, or a position from 0.")
]
ItemColumn = Annotated[str | None, typer.Option("--item", help="Column of the item.")]
RatingColumn = Annotated[str | None, typer.Option("--rating", help="Column of the rating.")]
TimeColumn = Annotated[str | None, typer.Option("--timestamp", help="Column of the time.")]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether the first line is a header.")
]
Separator = Annotated[str | None, typer.Option("--separator", help="Between two cells.")]
Cut = Annotated[
    str, typer.Option("--split", help="per-user, or time: one cut in time for everybody.")
]
ShuffleTies = Annotated[
    int | None,
    typer.Option("--shuffle-ties", help="Seed that shuffles what a user did at one time."),
]
Lengths = Annotated[str, typer.Option("--k", help="Lengths of the lists, by commas.")]


def column(name: str | None) -> str | int | None:
    return int(name) if name is not None and name.isdecimal() else name


def lengths(text: str) -> list[int]:
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ConfigError(f"--k {text!r}: give whole numbers by commas, as in 5,10,20") from None
    if values[0] < 1:
        raise ConfigError(f"--k {text!r}: a list has at least one item")
    return values


def data_spec(
    source: str,
    *,
    user: str | None,
    item: str | None,
    rating: str | None,
    timestamp: str | None,
    header: bool | None,
    separator: str | None,
    cut: str = "per-user",
    shuffle_ties: int | None = None,
    item_table: Path | None = None,
    group_column: str | None = None,
    sensitive: str | None = None,
) -> "DataSpec":
    """What the options say of the data; the path of a file is made absolute, to be found again."""
    from pydantic import ValidationError

    from fairhorizon.experiments.runs import DataSpec

    path = Path(source)
    try:
        return DataSpec(
            source=str(path.resolve()) if path.exists() else source,
            user=column(user),
            item=column(item),
            rating=column(rating),
            timestamp=column(timestamp),
            header=header,
            separator=separator,
            cut=cut,
            shuffle_ties=shuffle_ties,
            item_table=None if item_table is None else str(item_table.resolve()),
            group_column=group_column,
            sensitive_values=tuple(sensitive.split(",")) if sensitive else (),
        )
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def explain(error: Exception) -> str:
    """A pydantic error in one line."""
    from pydantic import ValidationError

    assert isinstance(error, ValidationError)
    return "; ".join(
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
    )
