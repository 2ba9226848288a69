"""fairhorizon.toml: data, columns, groups, limits, method and settings of all commands."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, Field, NonNegativeInt, ValidationError

from fairhorizon.data.loading import is_named
from fairhorizon.errors import ConfigError
from fairhorizon.limits.language import Limit, LimitError
from fairhorizon.settings import Settings, expected

LARGEST_SEED = 2**32 - 1
TABLE_LINE = re.compile(r"\s*\[\[?\s*(?P<name>[^\]]+?)\s*\]")
KEY_LINE = re.compile(r"\s*(?P<name>[\w.\"' -]+?)\s*=")
AT_LINE = re.compile(r" \(at line (?P<line>\d+), column \d+\)")


def _without_comma(value: str) -> str:
    if "," in value:
        raise ValueError("values without commas")
    return value


ColumnName = Annotated[str | int, Field(union_mode="left_to_right")]
GroupValue = Annotated[str, AfterValidator(_without_comma)]


class DataSection(Settings):
    """[data]"""

    source: str | None = None
    """Name of a data set, or path of a file."""
    header: bool | None = None
    """Whether the first line is a header; without it, that is detected."""
    separator: str | None = None
    """Text between two cells; without it, that is detected."""
    encoding: str | None = None
    """Encoding of the text, also of the item table; utf-8 without it."""
    drop_incomplete: bool | None = None
    """Whether rows without a user, an item, a time or a weight are left out, and counted."""
    split: Literal["per-user", "time"] | None = None
    """How the log is split, as by --split."""
    ties: Literal["keep"] | NonNegativeInt | None = None
    """Order of a user's interactions at one time: as in the file, or shuffled with this seed."""


class ColumnsSection(Settings):
    """[columns]"""

    user: ColumnName | None = None
    """Column with the user: its name, or its position from 0."""
    item: ColumnName | None = None
    """Column with the item."""
    rating: ColumnName | None = None
    """Column with the rating."""
    time: ColumnName | None = None
    """Column with the time."""
    weight: ColumnName | None = None
    """Column that says how much, such as a quantity; "rows": how often the user took the item."""
    session: ColumnName | None = None
    """Column with the session, of a log without users."""


class GroupsSection(Settings):
    """[groups]"""

    column: str | None = None
    """Column with the group of an item; without it, the popular items are the limited group."""
    sensitive: tuple[GroupValue, ...] = ()
    """Values of that column whose exposure is limited."""
    area_km: Annotated[float, Field(ge=0.001)] | None = None
    """Width of the areas that items with coordinates are in, in kilometres; 10 without it."""
    popular_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the catalogue that counts as popular; 0.2 without it."""
    item_table: str | None = None
    """Path of a file with a row per item, for groups and limits by a column."""


class ConfigFile(Settings):
    """All keys of the file; one that is left out is as without the file."""

    method: str | None = None
    """What to fit, as METHOD of `fit`."""
    limits: tuple[str, ...] = ()
    """As --limit, in the language of limits."""
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None = None
    """Seed of all random numbers."""
    cache_dir: str | None = None
    """Folder of downloaded data sets."""
    data: DataSection = DataSection()
    """The log, and how it is read."""
    columns: ColumnsSection = ColumnsSection()
    """The columns of the log."""
    groups: GroupsSection = GroupsSection()
    """The groups of items whose exposure is limited."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the method, as --set; those of a part in a table of its own."""
    service: dict[str, Any] = Field(default_factory=dict)
    """Settings of the service (docs/service.md)."""


@dataclass(frozen=True)
class _Text:
    """The file as it is written, to say where a fault is."""

    file: Path
    text: str

    def fail(self, fault: str, line: int | None) -> NoReturn:
        where = f"{self.file}" if line is None else f"{self.file} line {line}"
        raise ConfigError(f"{where}: {fault}")

    def line_of(self, *path: str) -> int | None:
        """The line of a key or of a table; of an inline table, that of the table."""
        table: tuple[str, ...] = ()
        for number, line in enumerate(self.text.splitlines(), start=1):
            if (found := TABLE_LINE.match(line)) is not None:
                table = _parts(found["name"])
                key: tuple[str, ...] = ()
            elif (found := KEY_LINE.match(line)) is not None:
                key = _parts(found["name"])
            else:
                continue
            if (*table, *key)[: len(path)] == path:
                return number
        return self.line_of(*path[:-1]) if len(path) > 1 else None

    def line_of_value(self, value: str, key: str) -> int | None:
        """The line of a text in the list of a key."""
        begin = self.line_of(key)
        lines = self.text.splitlines()
        after = range((begin or 1) - 1, len(lines))
        written = (value, value.replace("\\", "\\\\").replace('"', '\\"'))
        found = (n + 1 for n in after if any(one in lines[n] for one in written))
        return next(found, begin)


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in name.split("."))


def read_config(file: Path) -> ConfigFile:
    """The file, with relative paths made relative to its folder; a ConfigError says what is wrong.

    Keys of `settings` are checked by the method that they are for.
    """
    try:
        written = _Text(file, file.read_text(encoding="utf-8-sig"))
        content = tomllib.loads(written.text)
    except tomllib.TOMLDecodeError as error:
        found = AT_LINE.search(str(error))
        fault = AT_LINE.sub("", str(error))
        remedy = "see docs/config.md for the form of the file"
        written.fail(f"not TOML: {fault} ({remedy})", None if found is None else int(found["line"]))
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8 (save it in this encoding)") from None
    try:
        config = ConfigFile.model_validate(content)
    except ValidationError as error:
        _explain(error, written)
    for place, text in enumerate(config.limits, start=1):
        try:
            Limit.parse(text)
        except LimitError as error:
            written.fail(f"limit {place}: {error}", written.line_of_value(text, "limits"))
    return _with_paths(config, file.parent)


def _explain(error: ValidationError, written: _Text) -> NoReturn:
    """The first fault: an unknown key with the nearest one that there is, or a wrong value."""
    fault = error.errors()[0]
    path = [str(part) for part in fault["loc"]]
    table = ConfigFile.model_fields.get(path[0]) if len(path) > 1 else None
    section = ConfigFile if table is None else table.annotation
    if fault["type"] == "extra_forbidden":
        known = list(getattr(section, "model_fields", {}))
        near = get_close_matches(path[-1], known, n=1, cutoff=0.6)
        remedy = f"is it {near[0]}?" if near else f"there are {', '.join(known)}"
        written.fail(f"there is no key {'.'.join(path)} ({remedy})", written.line_of(*path))
    # within a key pydantic adds positions and the types that it tried
    depth = 2 if table is not None and getattr(section, "model_fields", None) else 1
    others = [one for one in error.errors() if one["loc"][:depth] == fault["loc"][:depth]]
    wanted = " or ".join(dict.fromkeys(map(_wanted, others)))
    key = ".".join(path[:depth])
    line = written.line_of(*path[:depth])
    written.fail(f"{key} = {fault['input']!r} (give {wanted})", line)


def _wanted(fault: Any) -> str:
    if fault["type"] in ("model_type", "dict_type"):
        return f"a table, [{fault['loc'][0]}]"
    if fault["type"] == "tuple_type":
        return 'a list of texts, as in ["a", "b"]'
    return expected(fault)


def _with_paths(config: ConfigFile, folder: Path) -> ConfigFile:
    """Relative paths are relative to the file; names of data sets stay."""

    def resolved(path: str | None) -> str | None:
        return None if path is None else str((folder / Path(path).expanduser()).resolve())

    source = config.data.source
    if source is not None and not is_named(source):
        source = resolved(source)
    changes: Mapping[str, Any] = {
        "cache_dir": resolved(config.cache_dir),
        "data": config.data.model_copy(update={"source": source}),
        "groups": config.groups.model_copy(
            update={"item_table": resolved(config.groups.item_table)}
        ),
    }
    return config.model_copy(update=changes)
