"""Options that several commands share."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli.config_option import takes_config
from fairhorizon.cli.declaring import declared
from fairhorizon.cli.kind_options import AreaKm, SessionColumn, WeightColumn
from fairhorizon.vocabulary import Cut, Mode, Protocol

if TYPE_CHECKING:
    from fairhorizon.data.readers import ReaderOptions
    from fairhorizon.data.splits import Split, Ties
    from fairhorizon.datasets import DataSpec

FILE = "Reading a file of your own"
SPLIT = "Splitting"
GROUPS = "The limited group (the most popular items without these options)"
LARGEST_SEED = 2**32 - 1

SOURCE = (
    "Name of a data set (ml-100k, ml-1m, synthetic, synthetic:users=200) or path of a file: CSV, "
    "TSV, Parquet, u.data, ratings.dat, .inter, also packed by gzip or zip, or a folder of them."
)
Data = Annotated[str, typer.Option("--data", help=SOURCE)]
Source = Annotated[str, typer.Argument(help=SOURCE)]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        help="Folder of downloaded data sets and read parts.",
        show_default=False,
    ),
]
UserColumn = Annotated[
    str | None,
    typer.Option(
        "--user",
        help="Column with the user: its name, or its position from 0.",
        rich_help_panel=FILE,
    ),
]
ItemColumn = Annotated[
    str | None, typer.Option("--item", help="Column with the item.", rich_help_panel=FILE)
]
RatingColumn = Annotated[
    str | None, typer.Option("--rating", help="Column with the rating.", rich_help_panel=FILE)
]
TimeColumn = Annotated[
    str | None, typer.Option("--timestamp", help="Column with the time.", rich_help_panel=FILE)
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Read the first line as a header or as data.",
        rich_help_panel=FILE,
    ),
]
Separator = Annotated[
    str | None, typer.Option("--separator", help="Text between two cells.", rich_help_panel=FILE)
]
Encoding = Annotated[
    str,
    typer.Option(
        "--encoding",
        help="Encoding of the text, such as latin-1, also of the item table.",
        rich_help_panel=FILE,
    ),
]
CutOption = Annotated[
    Cut,
    typer.Option(
        "--split",
        help="per-user: the last fifth of each user's items is for testing. time: everything after "
        "one point in time is.",
        rich_help_panel=SPLIT,
    ),
]
ShuffleTies = Annotated[
    int | None,
    typer.Option(
        "--shuffle-ties",
        min=0,
        help="Shuffle interactions of a user that have the same time, with this seed. Without it "
        "they are shuffled, with seed 0, only if they are more than a tenth of all.",
        rich_help_panel=SPLIT,
    ),
]
KeepTies = Annotated[
    bool,
    typer.Option(
        "--keep-ties",
        help="Keep interactions of a user that have the same time in the order of the file.",
        rich_help_panel=SPLIT,
    ),
]
ProtocolOption = Annotated[
    Protocol,
    typer.Option(
        help="standard: never recommend items of a user's history. paper: allow training items."
    ),
]
ModeOption = Annotated[
    Mode,
    typer.Option(
        help="one-shot: make the whole list at once. interactive: make it item by item, with "
        "feedback from the test items in between."
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the result to a JSON file.")]
Seed = Annotated[
    int, typer.Option(min=0, max=LARGEST_SEED, metavar="<int>", help="Seed of all random numbers.")
]
FitSeed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=LARGEST_SEED,
        metavar="<int>",
        help="Seed of all random numbers.",
        show_default="0",
    ),
]
ListSeed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=LARGEST_SEED,
        metavar="<int>",
        help="Seed of the sampled lists.",
        show_default="that of the fit",
    ),
]


GroupColumn = Annotated[
    str | None,
    typer.Option(
        "--group-column",
        help="Column with the group of an item. A cell may hold several groups, as in Drama|War.",
        rich_help_panel=GROUPS,
    ),
]
Sensitive = Annotated[
    str | None,
    typer.Option(
        "--sensitive",
        help="Comma-separated groups whose exposure is limited.",
        rich_help_panel=GROUPS,
    ),
]
ItemTable = Annotated[
    Path | None,
    typer.Option(
        "--item-table",
        help="File with a row per item that has the group column. Without it the column is read "
        "from the data.",
        rich_help_panel=GROUPS,
    ),
]


def column(name: str | None) -> str | int | None:
    return int(name) if name is not None and name.isdecimal() else name


def warn_if_untested(parts: "Split") -> None:
    """Say how many users have no test items, if any."""
    users = parts.test.n_users
    untested = users - len(set(parts.test.users.tolist()))
    if untested == users:
        typer.echo("note: no user has test items, so recall, F1 and NDCG are undefined", err=True)
    elif untested:
        typer.echo(
            f"note: {untested:,} of {users:,} users ({untested / users:.1%}) have no test items: "
            "recall, F1 and NDCG are those of the others",
            err=True,
        )


def takes_reader(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all options of `reader`; it is called with `reading`, their result."""
    options = inspect.signature(reader).parameters

    def called(**given: Any) -> Any:
        values = {name: given.pop(name) for name in options}
        return command(**given, reading=reader(**values))

    return declared(command, called, list(options.values()), made=["reading"])


def reader(
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    timestamp: TimeColumn = None,
    weight: WeightColumn = None,
    session: SessionColumn = None,
    header: Header = None,
    separator: Separator = None,
    encoding: Encoding = "utf-8",
) -> "ReaderOptions":
    """How to read a file; a separator typed as \\t is a tab."""
    return {
        "user": column(user),
        "item": column(item),
        "rating": column(rating),
        "timestamp": column(timestamp),
        "weight": column(weight),
        "session": column(session),
        "header": header,
        "separator": "\t" if separator == "\\t" else separator,
        "encoding": encoding,
    }


def groups(column: str | None, sensitive: str | None, table: Path | None) -> dict[str, Any]:
    """The fields of a DataSpec that say which items are limited; the path is made absolute."""
    return {
        "group_column": column,
        "sensitive_values": tuple(sensitive.split(",")) if sensitive else (),
        "item_table": None if table is None else str(table.resolve()),
    }


def order_of_ties(shuffle: int | None, keep: bool) -> "Ties":
    """The setting `ties` of a DataSpec that the two options mean."""
    if keep and shuffle is not None:
        raise typer.BadParameter(
            "cannot be given together with --shuffle-ties", param_hint="--keep-ties"
        )
    return "keep" if keep else "auto" if shuffle is None else shuffle


def data_spec(source: str, **fields: Any) -> "DataSpec":
    """The description of the data; the path of a file is made absolute, to be found again."""
    from fairhorizon.data.sources import is_named
    from fairhorizon.datasets import DataSpec

    is_file = not is_named(source) and Path(source).exists()
    return DataSpec(source=str(Path(source).resolve()) if is_file else source, **fields)


@takes_reader
def described_data(
    data: Data,
    reading: "ReaderOptions",
    cache_dir: CacheDir = None,  # noqa: ARG001  # of the command, no part of the description
    cut: CutOption = Cut.PER_USER,
    shuffle_ties: ShuffleTies = None,
    keep_ties: KeepTies = False,
    group_column: GroupColumn = None,
    sensitive: Sensitive = None,
    item_table: ItemTable = None,
    area_km: AreaKm = 10.0,
) -> "DataSpec":
    """The data that the options of a command describe."""
    return data_spec(
        data,
        **reading,
        **groups(group_column, sensitive, item_table),
        cut=cut.value,
        area_km=area_km,
        ties=order_of_ties(shuffle_ties, keep_ties),
    )


def takes_data(
    command: Callable[..., None], *, settings_by_method: bool = False
) -> Callable[..., None]:
    """Give a command all options of `described_data`, and --config.

    It is called with `data`, the DataSpec of the options. settings_by_method: its option --set is
    method.key=value.
    """
    options = inspect.signature(described_data).parameters

    def called(**given: Any) -> None:
        values = {name: given.pop(name) for name in options}
        command(**given, data=described_data(**values), cache_dir=values["cache_dir"])

    described = declared(command, called, list(options.values()))
    return takes_config(described, settings_by_method=settings_by_method)
