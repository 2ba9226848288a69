"""Options that several commands share, and what their values mean.

A command has these types in its signature: `k: Length = None` is the option --k. The functions
below the types turn values that belong together into what the library is called with.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli.config import COMMAND_LINE, settings_by_method, source_of
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.files import is_stdout
from fairhorizon.vocabulary import Cut, EngineName, Mode, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairhorizon.data.log_files import ReaderOptions
    from fairhorizon.data.splits import Split, Ties
    from fairhorizon.datasets import DataSpec
    from fairhorizon.methods import Method
    from fairhorizon.parallel.engine import TaskEngine

# panels of the help
FILE = "Reading a file of your own"
SPLIT = "Splitting"
GROUPS = "The limited group (the most popular items without these options)"
ENGINE = "Where it runs"

NAME_OF_FILE = re.compile(r"[\w-]+")  # nothing that the name of a method has a meaning for
LARGEST_SEED = 2**32 - 1
LENGTHS = (5, 10, 20)  # of lists, without --k; those that the catalogue can fill
LONGEST = LENGTHS[-1:]

# ---- the log

SOURCE = (
    "Name of a data set (ml-100k, ml-1m, synthetic, synthetic:users=200) or path of a file: CSV, "
    "TSV, Parquet, u.data, ratings.dat, .inter (with .item beside it), also packed by gzip or zip, "
    "or a folder of them."
)


def known_source(_context: typer.Context, source: str) -> str:
    """Refuse what is neither a file nor a named set before torch is imported."""
    from fairhorizon.data.loading import check_source

    check_source(source)
    return source


def there(_context: typer.Context, path: Path | None) -> Path | None:
    """Refuse the path of a file that is to be read, and is not there, before torch is imported."""
    if path is not None and not path.exists():
        raise DataError("there is no such file", file=path, remedy="check the path")
    return path


Data = Annotated[str, typer.Option("--data", help=SOURCE, callback=known_source)]
Source = Annotated[str, typer.Argument(help=SOURCE, callback=known_source)]
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
DropIncomplete = Annotated[
    bool,
    typer.Option(
        "--drop-incomplete",
        help="Leave out rows without a user, an item, a time or a weight, and say how many.",
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
CutOption = Annotated[
    Cut,
    typer.Option(
        "--split",
        help="per-user: the last fifth of each user's items is for testing. time: everything after "
        "one point in time is. given: --data is a folder with files train, validation and test.",
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
        callback=there,
    ),
]

# ---- limits

LIMIT = "--limit"
LIMIT_FORM = "GROUP<=SHARE"
LIMIT_HELP = (
    "Limit on what is shown: 'seller=MegaMart<=0.2' at most a fifth, 'new>=0.05@10' at least a "
    "twentieth of the first 10 places. In quotes, because of the shell. docs/limits.md has the "
    "whole language. Repeatable."
)


def known_limits(_context: typer.Context, texts: list[str] | None) -> list[str] | None:
    """Refuse what is no limit before torch is imported."""
    if texts:
        from fairhorizon.limits.language import Limit, LimitError

        try:
            for text in texts:
                Limit.parse(text)
        except LimitError as error:
            raise typer.BadParameter(str(error), param_hint=LIMIT) from None
    return texts


Limits = Annotated[
    list[str] | None,
    typer.Option(LIMIT, metavar=LIMIT_FORM, help=LIMIT_HELP, callback=known_limits),
]
StudiedLimits = Annotated[
    list[str] | None,
    typer.Option(
        LIMIT,
        metavar=LIMIT_FORM,
        help="Measure this limit on the lists of every method. Methods that are given without a "
        "level are served under all limits, if they can keep them. Repeatable.",
        callback=known_limits,
    ),
]
ServedLimits = Annotated[
    list[str] | None,
    typer.Option(
        LIMIT,
        metavar=LIMIT_FORM,
        help=LIMIT_HELP,
        show_default="those of the fit",
        callback=known_limits,
    ),
]
ServedTable = Annotated[
    Path | None,
    typer.Option(
        "--item-table",
        help="File with a row per item that has the columns of --limit.",
        show_default="that of the fit, else the data has the columns",
        callback=there,
    ),
]


def _a_share(level: float | None) -> float | None:
    if level is None or 0 < level <= 1:
        return level
    raise typer.BadParameter(f"{level:g} is no share of what is shown (give one above 0, up to 1)")


ServedLevel = Annotated[
    float | None,
    typer.Option(
        "--alpha-prime",
        help="Serve at this limit: largest share of the limited group in the lists, at most 1.",
        show_default="that of the fit",
        callback=_a_share,
    ),
]

# ---- lists


def fitted_run(_context: typer.Context, folder: Path | None) -> Path | None:
    """Refuse a folder without a model before torch is imported, which takes seconds."""
    if folder is not None:
        from fairhorizon.model.card import ModelCard

        ModelCard.read(folder)
    return folder


RunFolder = Annotated[
    Path, typer.Argument(help="Folder that fit has written.", callback=fitted_run)
]
Length = Annotated[
    int | None,
    typer.Option(
        "--k", min=1, help="Length of the lists.", show_default="20, or all items if fewer"
    ),
]
Lengths = Annotated[
    str | None,
    typer.Option(
        "--k",
        help="Comma-separated list lengths.",
        show_default="5,10,20, without those above the number of items",
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


def one_file(context: typer.Context, path: Path | None) -> Path | None:
    """The callback of options for a file: it may go to standard output, and notes then may not."""
    if path is not None and is_stdout(path):
        context.with_resource(redirect_stdout(sys.stderr))
    return path


JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="Write the result to a JSON file.", callback=one_file),
]
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

# ---- where it runs


def _jobs(tasks: str, default: str) -> Any:
    return typer.Option(
        "--jobs",
        min=1,
        help=f"Number of {tasks} in parallel.",
        show_default=default,
        rich_help_panel=ENGINE,
    )


Jobs = Annotated[int | None, _jobs("trainings", "all cores")]
TrialJobs = Annotated[int, _jobs("trials", "1")]
BlockJobs = Annotated[int, _jobs("blocks of users that are served", "1: in this process")]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="processes: of this machine. ray: a Ray cluster, or Ray on this machine without "
        "--address.",
        rich_help_panel=ENGINE,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Ray cluster to connect to: auto (the one that this machine is part of), HOST:PORT "
        "or ray://HOST:PORT.",
        rich_help_panel=ENGINE,
    ),
]
Threads = Annotated[
    int, typer.Option("--threads", min=1, help="Threads of each worker.", rich_help_panel=ENGINE)
]

# ---- studies

Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds: 0, 1, ...")]
SettingsFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--settings",
        help='Read settings from a JSON file: {"ease": {"l2": 500}}, or best.json of tune. '
        "Repeatable.",
    ),
]
StudySet = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting: method.key=value, as in ease.l2=500. Repeatable.",
    ),
]

OTHERS = "What other programs have made"
Scores = Annotated[
    list[str] | None,
    typer.Option(
        "--scores",
        metavar="NAME=FILE",
        help="Scores as a ranker, scores:NAME, behind any re-ranker (scores:NAME+quota@0.4). "
        "Parquet, CSV or .npz with user, item and score, made from the training items alone. "
        "Repeatable.",
        rich_help_panel=OTHERS,
    ),
]
Lists = Annotated[
    list[str] | None,
    typer.Option(
        "--lists",
        metavar="NAME=FILE",
        help="Finished lists as a method, lists:NAME: CSV, TSV or Parquet with user, item and "
        "rank. Repeatable.",
        rich_help_panel=OTHERS,
    ),
]


def known_method(_context: typer.Context, name: str) -> str:
    """Refuse what is no method before torch is imported."""
    _check_methods([name], "METHOD")
    return name


def known_methods(_context: typer.Context, names: str | None) -> str | None:
    """The same for a comma-separated list."""
    _check_methods([name for name in (names or "").split(",") if name.strip()], "--methods")
    return names


def _check_methods(names: Sequence[str], option: str) -> None:
    from fairhorizon.methods import Method, MethodError

    try:
        for name in names:
            # Whether a method has levels is not known before it is imported.
            Method.parse(name.partition("@")[0])
    except MethodError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def methods_option(default: Sequence[str]) -> Any:
    """The option --methods of a study with these defaults."""
    return typer.Option(
        "--methods",
        help="Comma-separated list of methods, as in mf,ease+quota,fcpo:paper,fcpo@0.4. "
        "`fairhorizon methods` lists all of them.",
        show_default=", ".join(default),
        callback=known_methods,
    )


# ---- what the values mean


def column(name: str | None) -> str | int | None:
    """A column by its name, or by its position from 0."""
    return int(name) if name is not None and name.isdecimal() else name


def separator_of(text: str | None) -> str | None:
    """What is between two cells; \\t, as it is typed in a shell, is a tab."""
    return "\t" if text == "\\t" else text


def reader(
    user: str | None,
    item: str | None,
    rating: str | None,
    timestamp: str | None,
    weight: str | None,
    session: str | None,
    header: bool | None,
    separator: str | None,
    encoding: str,
    drop_incomplete: bool,
) -> "ReaderOptions":
    """How to read a file."""
    return {
        "user": column(user),
        "item": column(item),
        "rating": column(rating),
        "time": column(timestamp),
        "weight": column(weight),
        "session": column(session),
        "header": header,
        "separator": separator_of(separator),
        "encoding": encoding,
        "drop_incomplete": drop_incomplete,
    }


def limited_group(
    group_column: str | None, sensitive: str | None, item_table: Path | None, area_km: float
) -> dict[str, Any]:
    """The fields of a DataSpec that say which items are limited; the path is made absolute."""
    return {
        "group_column": group_column,
        "sensitive_values": tuple(sensitive.split(",")) if sensitive else (),
        "item_table": None if item_table is None else str(item_table.resolve()),
        "area_km": area_km,
    }


def order_of_ties(shuffle: int | None, keep: bool) -> "Ties":
    """The setting `ties` of a DataSpec that the two options mean."""
    if keep and shuffle is not None:
        raise typer.BadParameter(
            "cannot be given together with --shuffle-ties", param_hint="--keep-ties"
        )
    return "keep" if keep else "auto" if shuffle is None else shuffle


def data_spec(
    source: str,
    reading: "ReaderOptions",
    cut: Cut = Cut.PER_USER,
    ties: "Ties" = "auto",
    group: dict[str, Any] | None = None,
) -> "DataSpec":
    """The description of the data; the path of a file is made absolute, to be found again.

    group: from `limited_group`; without it the most popular items are limited.
    """
    from fairhorizon.data.loading import is_named
    from fairhorizon.datasets import DataSpec

    is_file = not is_named(source) and Path(source).exists()
    source = str(Path(source).resolve()) if is_file else source
    fields: dict[str, Any] = {**reading, **(group or {})}
    fields["timestamp"] = fields.pop("time", None)
    return DataSpec(source=source, cut=cut.value, ties=ties, **fields)


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


def parse_lengths(text: str | None) -> list[int] | None:
    """The lengths of lists that were typed, in rising order; None if none were."""
    if text is None:
        return None
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        values = [0]
    if values[0] < 1:
        raise typer.BadParameter(
            f"{text!r} (give whole numbers from 1 on, as in 5,10,20)",
            param_hint="--k",
        )
    return values


def fitting_lengths(
    ks: Sequence[int] | None, n_items: int, default: Sequence[int] = LENGTHS
) -> list[int]:
    """The lengths given, refused if there are too few items; else the defaults that fit.

    If no default fits, lists have all items.
    """
    if ks is None:
        return [k for k in default if k <= n_items] or [n_items]
    if max(ks) > n_items:
        raise ConfigError(f"--k {max(ks)}: there are only {n_items} items (give at most as many)")
    return list(ks)


def fitting_length(k: int | None, n_items: int, default: Sequence[int] = LONGEST) -> int:
    """The same for lists of one length."""
    return fitting_lengths(None if k is None else [k], n_items, default)[0]


def warn_if_shorter(lists: "NDArray[np.int64]", length: int) -> None:
    """Print a note if users have too few items left for a list of this length."""
    sizes = (lists >= 0).sum(1)
    shorter = int((sizes < length).sum())
    if shorter:
        typer.echo(
            f"note: {shorter:,} of {len(lists):,} lists have fewer than {length} items, the "
            f"shortest {sizes.min()}: no more are left to recommend to these users",
            err=True,
        )


def chosen_engine(
    jobs: int | None,
    name: EngineName = EngineName.PROCESSES,
    address: str | None = None,
    threads: int = 1,
) -> "TaskEngine":
    """The engine that the options describe; nothing is started before it has something to do."""
    if name is EngineName.RAY:
        from fairhorizon.parallel import ray_engine

        return ray_engine(address, jobs, threads)
    from fairhorizon.parallel.engine import Processes

    if address is not None:
        raise typer.BadParameter("is for --engine ray (give both)", param_hint="--address")
    return Processes(jobs or os.cpu_count() or 1, threads)


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """["rounds=50", "pmf.dim=32"] -> {"rounds": 50, "pmf": {"dim": 32}}."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        *path, last = key.split(".")
        target = parsed
        for name in path:
            target = target.setdefault(name, {})
            if not isinstance(target, dict):
                raise typer.BadParameter(f"{name} is set to {target} too", param_hint="--set")
        if not equals or not last:
            raise typer.BadParameter(
                f"{setting!r} (give key=value, as in rounds=50)", param_hint="--set"
            )
        try:
            target[last] = json.loads(text)
        except ValueError:
            target[last] = text  # a bare word, as in starts=anywhere
    return parsed


def study_settings(
    context: typer.Context, files: Sequence[Path] | None, given: Sequence[str] | None
) -> dict[str, Any]:
    """Settings by method; a later file takes precedence, then --config, then --set."""
    settings: dict[str, Any] = {}
    for file in files or ():
        for method, values in _read_settings(file).items():
            settings[method] = settings.get(method, {}) | values
    for method, values in parse_settings([*settings_by_method(context), *(given or ())]).items():
        if not isinstance(values, dict):
            raise typer.BadParameter(
                f"{method}={values} (give method.key=value, as in ease.l2=500)", param_hint="--set"
            )
        settings[method] = settings.get(method, {}) | values
    return settings


def given_files(
    scores: Sequence[str] | None, lists: Sequence[str] | None = None
) -> dict[str, dict[str, Any]]:
    """What --scores and --lists name, as settings of the methods `scores:NAME` and `lists:NAME`."""
    from fairhorizon.data.given_file import GivenFile

    settings = {}
    for what, texts in (("scores", scores or ()), ("lists", lists or ())):
        for text in texts:
            name, equals, file = text.partition("=")
            if not equals or not file or not NAME_OF_FILE.fullmatch(name):
                raise typer.BadParameter(
                    f"{text!r} (give NAME=FILE; a name has letters, digits, _ and -)",
                    param_hint=f"--{what}",
                )
            if f"{what}:{name}" in settings:
                raise typer.BadParameter(f"{name} twice", param_hint=f"--{what}")
            settings[f"{what}:{name}"] = GivenFile.from_path(file).model_dump()
    return settings


def with_given(
    methods: "Sequence[Method]", given: Collection[str], *, behind: str = ""
) -> "list[Method]":
    """The methods, and those of the files that none of them is made of.

    given: the names that `given_files` found.
    behind: the re-ranker of those that are added, as in "+control".
    """
    from fairhorizon.methods import GIVEN, Method

    for method in methods:
        if method.base in GIVEN and method.trained_name not in given:
            raise typer.BadParameter(
                f"{method}: no file is called so (give --{method.base} {method.preset}=FILE)",
                param_hint="--methods",
            )
    named = {method.trained_name for method in methods}
    return [*methods, *(Method.parse(name + behind) for name in given if name not in named)]


def _read_settings(file: Path) -> dict[str, dict[str, Any]]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON: {error} (see --help)") from None
    if isinstance(content, dict) and {"method", "settings"} <= set(content):
        content = {content["method"]: content["settings"]}
    if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
        raise ConfigError(f'{file}: holds no settings by method, as in {{"ease": {{"l2": 500}}}}')
    return content


# ---- the command line as it was typed, to be shown and run again


def typed_command(context: typer.Context) -> str:
    return shlex.join(["fairhorizon", str(context.info_name), *typed(context)])


def made_by(
    context: typer.Context, data: "DataSpec", cache_dir: Path | None, seeds: Sequence[int] = ()
) -> dict[str, Any]:
    """What a study is made by, for its JSON file."""
    from fairhorizon.studies import made_by as record

    return record.made_by(typed_command(context), data, cache_dir, seeds)


def typed(context: typer.Context, leave_out: Collection[str] = ()) -> Iterator[str]:
    """The arguments, without the parameters of the names left out."""
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in leave_out or source_of(context, name) != COMMAND_LINE:
            continue
        value = context.params[name]
        if parameter.param_type_name == "argument":
            yield str(value)
        elif isinstance(value, bool):
            yield (parameter.opts if value else parameter.secondary_opts)[0]
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                yield from (parameter.opts[0], str(one))
