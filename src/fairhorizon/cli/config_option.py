"""The option --config: values of a fairhorizon.toml in place of defaults of the command line."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli.declaring import declared
from fairhorizon.cli.limit_options import POPULAR_SHARE
from fairhorizon.cli.settings import written_settings
from fairhorizon.vocabulary import MethodName

if TYPE_CHECKING:
    from fairhorizon.config_file import ConfigFile
    from fairhorizon.limits.language import Limit

HELP = (
    "Take data, columns, groups, limits, method and settings from this file, such as "
    "fairhorizon.toml of `fairhorizon init`. Options on the command line win."
)
# sources of a value, as click calls them
COMMAND_LINE, FROM_FILE = "COMMANDLINE", "DEFAULT_MAP"
LIMITS = ("limit", "limits")  # what commands call their option --limit
# what is typed, and what of the file it excludes
EXCLUDING = (
    *(("keep_ties", "shuffle_ties"), ("group_column", "sensitive")),
    *(("user", "session"), ("session", "user")),
)
KEYS = {"data": "[data] source", "source": "[data] source", "method": "method"}


@dataclass(frozen=True)
class ConfigInUse:
    """A file that was read for a command, and where the values of its options are from."""

    file: Path
    content: "ConfigFile"
    context: typer.Context

    def __str__(self) -> str:  # as it was typed
        return str(self.file)

    def typed(self, name: str) -> bool:
        return source_of(self.context, name) == COMMAND_LINE

    def from_file(self, name: str) -> bool:
        return source_of(self.context, name) == FROM_FILE

    def reconciled(self, given: dict[str, Any], *, settings_by_method: bool) -> dict[str, Any]:
        """The values of a command, where what was typed excludes something of the file."""
        changed = dict(given)
        for typed, dropped in EXCLUDING:
            if self.typed(typed) and self.from_file(dropped):
                changed[dropped] = None
        if self.typed("shuffle_ties") and self.from_file("keep_ties"):
            changed["keep_ties"] = False
        limits = next((name for name in LIMITS if name in given), None)
        if limits is not None:
            changed[limits] = self._limits(given, limits)
        if self.from_file("method") and any(map(self.typed, ("alpha_prime", *LIMITS))):
            changed["method"] = given["method"].partition("@")[0]
        by_column = limits is not None and any(
            not one.group.reserved for one in _parsed(changed[limits])
        )
        used = given.get("group_column") or by_column or "title" in given
        if self.from_file("item_table") and not used:
            changed["item_table"] = None  # it has nothing that this command asks for
        if "settings" in given:
            own = self._settings(given, settings_by_method)
            changed["settings"] = [*own, *(given["settings"] or [])]
        return changed

    def _limits(self, given: Mapping[str, Any], name: str) -> list[str] | None:
        """Those of the file, without the one that was typed as the level of a method."""
        texts: list[str] | None = given[name]
        if not self.from_file(name):
            return texts
        if self.typed("shares"):  # the levels of a study, in place of its limits
            return None
        level = self.typed("method") and MethodName.split(given["method"]).level is not None
        if not level and not self.typed("alpha_prime"):
            return texts
        groups = self.content.groups
        column, values = given.get("group_column", groups.column), groups.sensitive
        kept = [one for one in _parsed(texts) if not _is_level(one, column, values)]
        return [str(one) for one in kept]

    def _settings(self, given: Mapping[str, Any], by_method: bool) -> list[str]:
        """Those of the file as --set has them, if they are for the method of the command."""
        settings, share = self.content.settings, self.content.groups.popular_share
        written = self.content.method
        own = MethodName.split(written or "")
        if by_method:
            self._note_of_popular_share(share)
            return list(written_settings(_by_method(settings, own) if written else settings))
        chosen = MethodName.split(given["method"])
        texts = []
        if share is not None and chosen.base == "fcpo":
            texts.append(f"popular_share={share}")
        else:
            self._note_of_popular_share(share)
        if written and (own.settings_name, own.reranker) != (chosen.settings_name, chosen.reranker):
            if settings:
                _note(f"the settings in {self.file} are for {written}, not for {given['method']}")
            return texts
        return [*texts, *written_settings(settings)]

    def _note_of_popular_share(self, share: float | None) -> None:
        if share not in (None, POPULAR_SHARE):
            _note(
                f"popular_share in {self.file} is for fcpo and audit: here a share of "
                f"{POPULAR_SHARE:g} of the items is popular"
            )


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


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


def _by_method(settings: Mapping[str, Any], method: MethodName) -> dict[str, Any]:
    """Settings of one method as those of several: under its name, and its re-ranker's."""
    own = {key: value for key, value in settings.items() if key != method.reranker}
    found = {method.settings_name: own}
    if method.reranker in settings:
        found[str(method.reranker)] = settings[str(method.reranker)]
    return found


def source_of(context: typer.Context, name: str) -> str | None:
    """Where the value of a parameter is from; None: there is no such parameter."""
    source = context.get_parameter_source(name)
    return None if source is None else source.name


def _values(content: "ConfigFile", names: set[str]) -> dict[str, Any]:
    """The values of the file by the names that parameters of commands have."""
    data, columns, groups = content.data, content.columns, content.groups
    found = {
        **dict.fromkeys(("data", "source"), data.source),
        **{"header": data.header, "separator": data.separator, "encoding": data.encoding},
        "cut": data.split,
        "shuffle_ties": None if data.ties == "keep" else data.ties,
        "keep_ties": True if data.ties == "keep" else None,
        **{"user": columns.user, "item": columns.item},
        **{"rating": columns.rating, "timestamp": columns.time},
        **{"weight": columns.weight, "session": columns.session, "area_km": groups.area_km},
        "group_column": groups.column,
        "sensitive": ",".join(groups.sensitive) or None,
        **{"popular_share": groups.popular_share, "item_table": groups.item_table},
        "method": content.method,
        **dict.fromkeys(LIMITS, list(content.limits) or None),
        # a run has a seed of its own
        "seed": None if "run" in names else content.seed,
        "cache_dir": content.cache_dir,
    }
    texts = {"user", "item", "rating", "timestamp", "weight", "session"}
    return {
        name: str(value) if name in texts else value
        for name, value in found.items()
        if name in names and value is not None
    }


def _apply(context: typer.Context, file: Path | None) -> ConfigInUse | None:
    """Read the file; click then takes its values where nothing was typed."""
    if file is None:
        return None
    from fairhorizon.config_file import read_config

    content = read_config(file)
    names = {str(parameter.name) for parameter in context.command.params}
    context.default_map = _values(content, names)
    return ConfigInUse(file, content, context)


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", is_eager=True, callback=_apply, help=HELP),
]


def takes_config(
    command: Callable[..., Any], *, settings_by_method: bool = False
) -> Callable[..., Any]:
    """Give a command the option --config; settings_by_method: its --set is method.key=value."""

    def called(config: ConfigInUse | None, **given: Any) -> Any:
        if config is not None:
            given = config.reconciled(given, settings_by_method=settings_by_method)
        return command(**given)

    option = inspect.Parameter(
        "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption
    )
    return declared(command, called, [option])


def missing_key(error: Exception) -> str | None:
    """The key of the file that would do instead of a parameter that was not given."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None or not str(error).startswith("Missing"):
        return None
    takes = any(one.name == "config" for one in context.command.params)
    return KEYS.get(parameter.name) if takes else None
