"""What `fairhorizon methods` prints: all methods, and the settings of each."""

import inspect
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fairhorizon.methods import RECOMMENDERS, Method, MethodError, build, presets_of
from fairhorizon.rankers import RANKERS
from fairhorizon.rerank import RERANKERS
from fairhorizon.settings import Choice, Search, Settings, searched

LONGEST_DEFAULT = 19  # columns: a longer default is wrapped
SOME_RANKER = "ease"  # in examples of a re-ranker
SOME_LEVEL = 0.35  # in examples; the default of no re-ranker
NOUNS = {  # by their type in a JSON schema
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "string": "name",
    "null": "null (None)",
    "object": "settings by name",
}
BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
PRESET_SUMMARIES = {
    "fcpo:fast": "FCPO over rankers in closed form, the default; one model serves any limit.",
    "fcpo:strong": "FCPO with gru4rec, a neural network, among its rankers; serves any limit.",
    "fcpo:start": "fcpo:fast without CPO rounds: the same rankers, weights and allocation.",
    "fcpo:strong-start": "fcpo:strong without CPO rounds, to compare with it.",
    "fcpo:long": "FCPO that looks ahead in the long run, for users who can leave.",
    "fcpo:paper": "FCPO as the paper's text says: NDCG@20 of 5.0 where the paper has 9.3.",
    "fcpo:tuned": "The paper's policy, what its text leaves open chosen anew: 12.5 there.",
}


class Kind(StrEnum):
    """What part of a recommender a method is."""

    RANKER = "ranker"
    RERANKER = "re-ranker"
    AGENT = "agent"
    PRESET = "preset"
    RERANKED = "ranker + re-ranker"


@dataclass(frozen=True)
class Entry:
    """A method in the list of all of them."""

    name: str
    kind: Kind
    summary: str
    takes_level: bool  # whether NAME@LEVEL is a method too


@dataclass(frozen=True)
class SettingEntry:
    """A setting as it is given to `--set`."""

    name: str  # dotted
    default: str  # as it can be typed after --set name=
    allowed: str
    meaning: str
    searched: str | None  # the range of `tune`; None: not searched


@dataclass(frozen=True)
class MethodEntry:
    """A method with everything that can be set."""

    entry: Entry
    settings: tuple[SettingEntry, ...]
    level: str | None  # what a level sets, by an example
    example: str  # a command

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self.entry),
            "settings": [asdict(setting) for setting in self.settings],
            "level": self.level,
            "example": self.example,
        }


def all_methods() -> list[Entry]:
    """Rankers, re-rankers, agents and presets, in this order."""
    rankers = [_entry(name, Kind.RANKER, RANKERS[name]) for name in RANKERS]
    rerankers = [_entry(name, Kind.RERANKER, RERANKERS[name]) for name in RERANKERS]
    agents = [_entry(name, Kind.AGENT, RECOMMENDERS[name]) for name in RECOMMENDERS]
    presets = [
        Entry(name, Kind.PRESET, PRESET_SUMMARIES.get(name, agent.summary), _takes_level(name))
        for agent in agents
        for name in (f"{agent.name}:{preset}" for preset in presets_of(agent.name))
    ]
    return [*rankers, *rerankers, *agents, *presets]


def describe(name: str) -> MethodEntry:
    """The method or re-ranker of this name; a `MethodError` lists those that exist."""
    names = (*RANKERS, *RERANKERS, *RECOMMENDERS, *PRESET_SUMMARIES)
    # A plain word that is nothing: the parser would only list methods, and not re-rankers.
    if name not in names and not set(name) & set("+:@"):
        raise MethodError(f"there is no method {name!r} (there are {', '.join(names)})")
    listed = {entry.name: entry for entry in all_methods()}
    if name in RERANKERS:
        base = Method.parse(f"{SOME_RANKER}+{name}")
        return _described(listed[name], base, _settings(RERANKERS[name](), f"{name}."))
    method = Method.parse(name)
    if method.level is not None:
        raise MethodError(f"{name}: the level is not needed here (give {method.name})")
    config = _config(method)
    settings = _settings(config, marks=dict(searched(config)))
    if method.reranker is None:
        return _described(listed[method.name], method, settings)
    ranker, reranker = listed[method.trained_name], listed[method.reranker]
    entry = Entry(
        method.name, Kind.RERANKED, f"{ranker.summary} {reranker.summary}", takes_level=True
    )
    of_reranker = _settings(RERANKERS[method.reranker](), f"{method.reranker}.")
    return _described(entry, method, [*settings, *of_reranker])


def methods_table(entries: Sequence[Entry]) -> Table:
    """A row per method; the column @ says which take a level."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("Method", no_wrap=True)
    table.add_column("Kind", no_wrap=True)
    table.add_column("@", no_wrap=True)
    table.add_column("What it is")
    for entry in entries:
        level = "@" if entry.takes_level else ""
        table.add_row(*map(Text, (entry.name, entry.kind.value, level, entry.summary)))
    return table


def settings_table(method: MethodEntry) -> Table:
    """A row per setting: its name, its default, and what it does."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("Setting", no_wrap=True)
    table.add_column("Default", max_width=LONGEST_DEFAULT)
    table.add_column("Meaning")
    for setting in method.settings:
        table.add_row(Text(setting.name), Text(setting.default), _meaning(setting))
    return table


def _meaning(setting: SettingEntry) -> Text:
    """The meaning, and in a line of its own the allowed values and the range of `tune`."""
    text = Text(setting.meaning)
    text.append(f"\nAllowed: {setting.allowed}.", style="dim")
    if setting.searched is not None:
        text.append(f" tune: {setting.searched}.", style="dim")
    return text


def _entry(name: str, kind: Kind, described: type) -> Entry:
    summary = (inspect.getdoc(described) or "").partition("\n")[0]
    example = f"{SOME_RANKER}+{name}" if kind is Kind.RERANKER else name
    return Entry(name, kind, summary, _takes_level(example))


def _takes_level(name: str) -> bool:
    try:
        Method.parse(f"{name}@{SOME_LEVEL}")
    except MethodError:
        return False
    return True


def _config(method: Method) -> Settings:
    """The settings of a method before anything is set; of its ranker if it has one."""
    return build(method, {}, seed=0).settings


def _described(entry: Entry, method: Method, settings: list[SettingEntry]) -> MethodEntry:
    """`method` is the one that the example fits."""
    return MethodEntry(entry, tuple(settings), _level(method), _example(method, settings))


def _example(method: Method, settings: list[SettingEntry]) -> str:
    """A command that sets something of the re-ranker, or else something that `tune` searches."""
    prefix = "" if method.reranker is None else f"{method.reranker}."
    own = [setting for setting in settings if setting.name.startswith(prefix)]
    own.sort(key=lambda setting: setting.searched is None)
    chosen = [f"--set {shlex.quote(f'{setting.name}={setting.default}')}" for setting in own[:1]]
    out = f"--out runs/{method.name.replace(':', '-')}"
    return " ".join(["fairhorizon fit", method.name, "--data ml-100k", *chosen, out])


def _level(method: Method) -> str | None:
    """Which settings a level changes, by an example."""
    if method.reranker is not None:
        # Found by trying: whatever the level changes in the settings.
        plain = RERANKERS[method.reranker]()
        before, after = plain.model_dump(), plain.at_level(SOME_LEVEL).model_dump()
        changed = {
            f"{method.reranker}.{key}": after[key] for key in after if after[key] != before[key]
        }
    elif method.base in RECOMMENDERS and RECOMMENDERS[method.base].level_setting:
        changed = {RECOMMENDERS[method.base].level_setting: SOME_LEVEL}
    else:
        return None
    given = ", ".join(f"{key}={_typed(value)}" for key, value in changed.items())
    return f"{method.name}@{SOME_LEVEL} sets {given}"


def _settings(
    config: Settings, prefix: str = "", marks: Mapping[str, Search | Choice] | None = None
) -> list[SettingEntry]:
    return list(_walk(config, prefix, marks or {}))


def _walk(
    config: Settings, prefix: str, marks: Mapping[str, Search | Choice]
) -> Iterator[SettingEntry]:
    schema = type(config).model_json_schema()
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Settings):
            yield from _walk(value, f"{prefix}{name}.", marks)
            continue
        mark = marks.get(prefix + name)
        yield SettingEntry(
            name=prefix + name,
            default=_typed(config.model_dump(mode="json").get(name)),
            allowed=_allowed(schema["properties"][name], schema.get("$defs", {})),
            meaning=" ".join((field.description or "").split()),
            searched=None if mark is None else _searched(mark),
        )


def _typed(value: Any) -> str:
    """A value as it is typed: JSON, but a text without quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def _searched(mark: Search | Choice) -> str:
    if isinstance(mark, Choice):
        return ", ".join(map(_typed, mark.values))
    return f"{mark.low:g} to {mark.high:g}" + (", log scale" if mark.log else "")


def _allowed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """The values that a JSON schema allows, in words."""
    if "$ref" in schema:
        return _allowed(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return ", or ".join(_allowed(option, definitions) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(schema["enum"])
    kind = schema["type"]
    if kind == "array" and "prefixItems" in schema:
        parts = schema["prefixItems"]
        return f"list of {len(parts)} {_nouns(parts[0])}"
    if kind == "array":
        return f"list of {_nouns(schema['items'])}"
    bounds = _bounds(schema)
    # "number, at least 1" but "number above 0".
    comma = "," if bounds.startswith("at ") else ""
    return f"{NOUNS[kind]}{comma} {bounds}" if bounds else NOUNS[kind]


def _nouns(schema: Mapping[str, Any]) -> str:
    """What a list is made of."""
    bounds = _bounds(schema)
    nouns = f"{NOUNS[schema['type']]}s"
    return f"{nouns}, each {bounds}" if bounds else nouns


def _bounds(schema: Mapping[str, Any]) -> str:
    """`from 0 to 1`, `above 0`, `above 0, at most 1` and the like; nothing without bounds."""
    if "minimum" in schema and "maximum" in schema:
        return f"from {schema['minimum']:g} to {schema['maximum']:g}"
    return ", ".join(f"{word} {schema[key]:g}" for key, word in BOUNDS.items() if key in schema)
