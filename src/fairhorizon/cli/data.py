"""fairhorizon data, init and methods: what there is to work with, before anything is fitted."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options
from fairhorizon.cli.config import Config
from fairhorizon.errors import ConfigError
from fairhorizon.files import check_file, is_stream
from fairhorizon.vocabulary import Cut, ExampleKind, LogFormat

if TYPE_CHECKING:
    from fairhorizon.data.interactions import Interactions

data_commands = typer.Typer(help="Show a data set, write its split or an example.")


@data_commands.command()
def info(
    source: options.Source,
    cache_dir: options.CacheDir = None,
    area_km: options.AreaKm = 10.0,
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    rating: options.RatingColumn = None,
    timestamp: options.TimeColumn = None,
    weight: options.WeightColumn = None,
    session: options.SessionColumn = None,
    header: options.Header = None,
    separator: options.Separator = None,
    encoding: options.Encoding = "utf-8",
    drop_incomplete: options.DropIncomplete = False,
    _config: Config = None,
) -> None:
    """Print the number of users, items and interactions, and what kind of log it is."""
    from rich.console import Console

    from fairhorizon.data.atomic_files import columns_beside
    from fairhorizon.data.loading import is_named, item_columns, load
    from fairhorizon.data.splits import statistics, tied_share, ties_note
    from fairhorizon.report.tables import statistics_table

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    log = with_coordinates(load(source, cache_dir=cache_dir, **reading))
    Console().print(statistics_table(log.name, statistics(log)))
    if share := tied_share(log):
        typer.echo(f"{ties_note(share)}.")
    for note in kind_notes(log, reading.get("session"), area_km):
        typer.echo(note)
    named = is_named(source)
    if columns := item_columns(source) if named else columns_beside(source, encoding):
        typer.echo(f"Columns of its items: {', '.join(columns)}.")


def with_coordinates(log: "Interactions") -> "Interactions":
    """The log with latitude and longitude as attributes, if columns are called so."""
    from fairhorizon.data.columns import Origin
    from fairhorizon.data.frames import warn_of_missing_attribute
    from fairhorizon.data.locations import coordinates_among

    columns = coordinates_among(log.further) or ()
    for column in columns:
        warn_of_missing_attribute(log.further[column], column, Origin(log.name))
    return replace(log, attributes={**log.attributes, **{c: log.further[c] for c in columns}})


def kind_notes(log: "Interactions", session: str | int | None, area_km: float) -> list[str]:
    """What kind of log it is, in sentences; none of a plain log."""
    import numpy as np

    from fairhorizon.data.frames import counted
    from fairhorizon.data.locations import Locations, coordinates_among

    notes = []
    if log.parts is not None:
        parts = counted(log.parts.read + log.parts.kept, "part", "parts")
        notes.append(f"{parts}: {log.parts.read:,} read, {log.parts.kept:,} from the cache.")
    if session is not None:
        notes.append(f"Users are sessions, of column {session}: the next one is a new user.")
    totals = log.total_weights()
    if totals is not None:
        repeats = 0 if log.repeated is None else len(log.repeated.users)
        again = counted(repeats, "row repeats another", "rows repeat others")
        adding = f"; {again}, and their weights add up" if repeats else ""
        typical = f"{np.median(totals):.6g} at the median of a user and item"
        notes.append(f"Weights: {totals.sum():,.10g} in all, {typical}{adding}.")
    if coordinates_among(log.attributes) is not None:
        locations = Locations.from_attributes(log.attributes, log.name)
        areas = [area for area in locations.areas(area_km) if area]
        notes.append(
            f"Coordinates: of {len(areas):,} of {log.n_items:,} items, in {len(set(areas)):,} areas"
            f" of {area_km:g} km."
        )
    return notes


@data_commands.command()
def split(
    source: options.Source,
    out: Annotated[Path, typer.Option("--out", help="Folder for the three files.")],
    cache_dir: options.CacheDir = None,
    cut: options.CutOption = Cut.PER_USER,
    shuffle_ties: options.ShuffleTies = None,
    keep_ties: options.KeepTies = False,
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    rating: options.RatingColumn = None,
    timestamp: options.TimeColumn = None,
    weight: options.WeightColumn = None,
    session: options.SessionColumn = None,
    header: options.Header = None,
    separator: options.Separator = None,
    encoding: options.Encoding = "utf-8",
    drop_incomplete: options.DropIncomplete = False,
    _config: Config = None,
) -> None:
    """Write train.csv, validation.csv and test.csv with the original ids."""
    from fairhorizon.data.log_files import write_split

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    ties = options.order_of_ties(shuffle_ties, keep_ties)
    spec = options.data_spec(source, reading, cut, ties)
    parts = spec.open(cache_dir).split
    write_split(parts, out)
    typer.echo(
        f"{out}: {len(parts.train):,} training, {len(parts.validation):,} validation, "
        f"{len(parts.test):,} test interactions"
    )


@data_commands.command()
def example(
    kind: Annotated[ExampleKind, typer.Argument(help="Which kind of log.")],
    out: Annotated[
        Path, typer.Option("--out", help="CSV file to write.", callback=options.one_file)
    ],
    seed: options.Seed = 0,
) -> None:
    """Write a small made-up log, to try the options for its kind.

    shop: orders with quantities, products bought again. checkins: venues with
    latitude and longitude. sessions: views without users, with seconds spent.
    """
    from fairhorizon.data.example_logs import EXAMPLES
    from fairhorizon.files import write_atomically

    frame = EXAMPLES[kind.value](seed)
    write_atomically(out, lambda draft: frame.write_csv(draft))
    typer.echo(f"{out}: {len(frame):,} rows of {', '.join(frame.columns)}")


@data_commands.command()
def generate(
    source: Annotated[
        str, typer.Argument(help="A synthetic set, e.g. synthetic-large:users=1000,seed=1.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="A .csv or .parquet file; with --parts, a new folder.",
            callback=options.one_file,
        ),
    ],
    parts: Annotated[
        int, typer.Option(min=0, help="Write so many parts in time order, as files of a folder.")
    ] = 0,
    kind: Annotated[LogFormat, typer.Option("--format", help="Of the parts.")] = LogFormat.PARQUET,
) -> None:
    """Write a synthetic log.

    synthetic-large is drawn in time linear in its rows, for logs of millions:
    synthetic-large:users=100000,items=100000,interactions=10000000,seed=1
    """
    from fairhorizon.data.loading import load
    from fairhorizon.data.log_files import write_log, write_parts
    from fairhorizon.data.synthetic import is_synthetic

    if not is_synthetic(source):
        raise typer.BadParameter(f"{source!r} is no synthetic set", param_hint="SOURCE")
    if not parts and out.suffix.lower() not in (".csv", ".parquet") and not is_stream(out):
        raise typer.BadParameter(
            f"{out} ends in neither .csv nor .parquet (a folder needs --parts)", param_hint="--out"
        )
    log = load(source)
    if parts:
        write_parts(log, out, parts, kind.value)
    else:
        write_log(log, out)
    typer.echo(f"{out}: {len(log):,} rows of {log.n_users:,} users and {log.n_items:,} items")


def init(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(metavar="LOG", help=options.SOURCE, callback=options.known_source),
    ],
    item_table: Annotated[
        Path | None,
        typer.Option(
            "--item-table", help="File with a row per item, whose columns limits may be about."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="File to write.", callback=options.one_file)
    ] = Path("fairhorizon.toml"),
    cache_dir: options.CacheDir = None,
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    rating: options.RatingColumn = None,
    timestamp: options.TimeColumn = None,
    weight: options.WeightColumn = None,
    session: options.SessionColumn = None,
    header: options.Header = None,
    separator: options.Separator = None,
    encoding: options.Encoding = "utf-8",
    drop_incomplete: options.DropIncomplete = False,
) -> None:
    """Write a commented fairhorizon.toml for a log, which all commands take as --config.

    It has the columns that were recognised and a limit on popular items, chosen
    by how much of the log they have. For columns of few values, such as the
    seller, it proposes a floor for the smallest groups.
    """
    from fairhorizon.studies.proposal import ROLES, ConfigOrigin, propose, write_config

    if out.exists() and not is_stream(out):
        raise ConfigError(f"{out}: already exists (name another --out, or remove it)")
    check_file(out)
    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    found = propose(source, reading, item_table, cache_dir)
    command = options.typed_command(context)
    write_config(ConfigOrigin(out, source, item_table, reading, command), found)
    known = [f"{ROLES[role]} {name!r}" for role, name in found.columns.items() if name is not None]
    columns = f"; {', '.join(known)}" if known else ""
    typer.echo(f"{out}: {found.rows:,} interactions of {found.users:,} users{columns}")
    typer.echo(f"next: fairhorizon fit --config {out} --out runs/a")


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A ranker (ease), a variant of one (ease:recent), a re-ranker (quota), an agent "
            "(lird), a preset (fcpo:paper) or a ranker with a re-ranker (ease+quota). Without it "
            "all methods are listed.",
            show_default=False,
        ),
    ] = None,
    json_file: options.JsonFile = None,
) -> None:
    """List all methods, or the settings of one: default, allowed values and meaning."""
    from dataclasses import asdict

    from rich.console import Console

    from fairhorizon.files import write_json
    from fairhorizon.methods import MethodError
    from fairhorizon.report import catalogue

    check_file(json_file)
    console = Console()  # at the width of the terminal
    if name is None:
        entries = catalogue.all_methods()
        if json_file is not None:
            write_json(json_file, {"methods": [asdict(entry) for entry in entries]})
        console.print(catalogue.methods_table(entries))
        typer.echo("@: NAME@LEVEL sets how fair it is. A re-ranker follows a ranker: ease+quota.")
        typer.echo("Settings of one method: fairhorizon methods NAME")
        return
    try:
        method = catalogue.describe(name)
    except MethodError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from None
    if json_file is not None:
        write_json(json_file, method.to_json())
    heading = f"{method.entry.name} ({method.entry.kind.value}): {method.entry.summary}"
    console.print(heading, highlight=False, markup=False)
    if method.settings:
        console.print(catalogue.settings_table(method))
    else:
        typer.echo("It has no settings.")
    if method.level is not None:
        typer.echo(f"Level: {method.level}")
    typer.echo(f"Example: {method.example}")
