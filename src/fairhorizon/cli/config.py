"""The option --config: values of a fairhorizon.toml in place of defaults of the command line.

The callback of the option fills click's `default_map`, where click looks for the value of every
parameter that was not typed. What was typed may exclude or change a value of the file. Such values
are functions: click reads typed parameters first, so they are known when a function is called.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.vocabulary import MethodName

if TYPE_CHECKING:
    from fairhorizon.config_file import ConfigFile
    from fairhorizon.limits.language import Limit

POPULAR_SHARE = 0.2  # of the items, where no model says otherwise
# sources of a value, as click calls them
COMMAND_LINE, FROM_FILE = "COMMANDLINE", "DEFAULT_MAP"
LIMITS = ("limit", "limits")  # what commands call their option --limit
# keys of the file that can stand in for a parameter that has to be given
KEYS = {"data": "[data] source", "source": "[data] source", "method": "method"}


def source_of(context: typer.Context, name: str) -> str | None:
    """Where the value of a parameter is from; None: it has none yet, or there is no such one."""
    source = context.get_parameter_source(name)
    return None if source is None else source.name


@dataclass(frozen=True)
class ConfigInUse:
    """A file that was read for a command; it is the `obj` of the command's context."""

    file: Path
    content: "ConfigFile"
    context: typer.Context

    def defaults(self) -> dict[str, Any]:
        """Values, or functions that return them, by the names of the parameters of commands.

        None: as if the file did not have it.
        """
        data, columns, groups = self.content.data, self.content.columns, self.content.groups
        named = {str(parameter.name) for parameter in self.context.command.params}
        return {
            "data": data.source,
            "source": data.source,
            "header": data.header,
            "separator": data.separator,
            "encoding": data.encoding,
            "drop_incomplete": data.drop_incomplete,
            "cut": data.split,
            "keep_ties": lambda: self._ties() == "keep" or None,
            "shuffle_ties": lambda: None if (ties := self._ties()) == "keep" else ties,
            "user": lambda: None if self.typed("session") else _text(columns.user),
            "session": lambda: None if self.typed("user") else _text(columns.session),
            "item": _text(columns.item),
            "rating": _text(columns.rating),
            "timestamp": _text(columns.time),
            "weight": _text(columns.weight),
            "group_column": groups.column,
            "sensitive": lambda: None if self.typed("group_column") else self._sensitive(),
            "popular_share": groups.popular_share,
            "area_km": groups.area_km,
            "item_table": self._item_table,
            "method": self._method,
            **dict.fromkeys(LIMITS, self._limits),
            # a run has a seed of its own
            "seed": None if "run" in named else self.content.seed,
            "cache_dir": self.content.cache_dir,
        }

    def typed(self, *names: str) -> bool:
        """Whether one of the parameters was typed."""
        return any(source_of(self.context, name) == COMMAND_LINE for name in names)

    def _value(self, name: str, otherwise: Any) -> Any:
        return self.context.params[name] if self.typed(name) else otherwise

    def _ties(self) -> int | str | None:
        return None if self.typed("keep_ties", "shuffle_ties") else self.content.data.ties

    def _sensitive(self) -> str | None:
        return ",".join(self.content.groups.sensitive) or None

    def _method(self) -> str | None:
        """That of the file, without its level if another or a limit was typed."""
        method = self.content.method
        if method is not None and self.typed("alpha_prime", *LIMITS):
            return method.partition("@")[0]
        return method

    def _limits(self) -> list[str] | None:
        """Those of the file, without the one that was typed as the level of a method."""
        texts = list(self.content.limits)
        if self.typed("shares"):  # the levels of a study, in place of its limits
            return None
        has_level = MethodName.split(self._value("method", "")).level is not None
        if has_level or self.typed("alpha_prime"):
            groups = self.content.groups
            column = self._value("group_column", groups.column)
            kept = (one for one in _parsed(texts) if not _is_level(one, column, groups.sensitive))
            texts = [str(one) for one in kept]
        return texts or None

    def _item_table(self) -> str | None:
        """That of the file, for a command that asks for one of its columns."""
        names = {str(parameter.name) for parameter in self.context.command.params}
        limits = next((name for name in LIMITS if name in names), None)
        asked = "title" in names
        if "group_column" in names:
            asked |= bool(self._value("group_column", self.content.groups.column))
        if limits is not None:
            given = self._value(limits, self._limits())
            asked |= any(not one.group.reserved for one in _parsed(given))
        return self.content.groups.item_table if asked else None


def _text(column: str | int | None) -> str | None:
    return None if column is None else str(column)


def _parsed(texts: Sequence[str] | None) -> "list[Limit]":
    """Those that can be read; the command refuses what was typed otherwise."""
    from fairhorizon.limits.language import Limit, LimitError

    found = []
    for text in texts or ():
        try:
            found.append(Limit.parse(text))
        except LimitError:
            continue
    return found


def _is_level(limit: "Limit", column: str | None, values: Sequence[str]) -> bool:
    """Whether it is what --alpha-prime is short for."""
    from fairhorizon.limits.language import POPULAR, GroupOf

    group = GroupOf(POPULAR) if column is None else GroupOf(column, tuple(values))
    return limit.is_plain and not limit.is_floor and limit.group == group


def _use(context: typer.Context, file: Path | None) -> Path | None:
    """Read the file; click then takes its values where nothing was typed."""
    if file is not None:
        from fairhorizon.config_file import read_config

        context.obj = config = ConfigInUse(file, read_config(file), context)
        context.default_map = config.defaults()
    return file


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_use,
        help="Take data, columns, groups, limits, method and settings from this file, such as "
        "fairhorizon.toml of `fairhorizon init`. Options on the command line win.",
    ),
]


def missing_key(error: Exception) -> str | None:
    """The key of the file that would do instead of a parameter that was not given."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None or not str(error).startswith("Missing"):
        return None
    takes = any("--config" in one.opts for one in context.command.params)
    return KEYS.get(parameter.name) if takes else None


def settings_for(context: typer.Context, method: str) -> list[str]:
    """The settings of the file as --set has them, if they are for this method."""
    config: ConfigInUse | None = context.obj
    if config is None:
        return []
    settings, share = config.content.settings, config.content.groups.popular_share
    written = config.content.method
    own, chosen = MethodName.split(written or ""), MethodName.split(method)
    texts = []
    if share is not None and chosen.base == "fcpo":
        texts.append(f"popular_share={share}")
    else:
        _note_of_popular_share(config)
    if written and (own.settings_name, own.reranker) != (chosen.settings_name, chosen.reranker):
        if settings:
            _note(f"the settings in {config.file} are for {written}, not for {method}")
        return texts
    return [*texts, *_as_typed(settings)]


def settings_by_method(context: typer.Context) -> list[str]:
    """The settings of the file as --set has them in a study: under the name of the method."""
    config: ConfigInUse | None = context.obj
    if config is None:
        return []
    _note_of_popular_share(config)
    settings, method = config.content.settings, MethodName.split(config.content.method or "")
    if not method.base:
        return list(_as_typed(settings))
    # those of a re-ranker are under its own name already
    found = {
        method.settings_name: {
            key: value for key, value in settings.items() if key != method.reranker
        }
    }
    if method.reranker in settings:
        found[str(method.reranker)] = settings[str(method.reranker)]
    return list(_as_typed(found))


def _as_typed(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """{"rounds": 50, "pmf": {"dim": 32}} -> "rounds=50", "pmf.dim=32"."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _as_typed(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value, default=str)}"


def _note_of_popular_share(config: ConfigInUse) -> None:
    if config.content.groups.popular_share not in (None, POPULAR_SHARE):
        _note(
            f"popular_share in {config.file} is for fcpo and audit: here a share of "
            f"{POPULAR_SHARE:g} of the items is popular"
        )


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)
