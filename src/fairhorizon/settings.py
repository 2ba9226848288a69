"""The base of every method's settings, and where a search looks for good ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from fairhorizon.errors import ConfigError

Given = Mapping[str, Any]  # settings by name, those of a part nested under the part's name


class SettingsError(ConfigError):
    """A setting that a method does not have or cannot take."""


class Settings(BaseModel):
    """Frozen, and an unknown setting is an error; the default of a setting stands beside it.

    What a setting does is said by the string below it, which `help` and the JSON schema show.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


@dataclass(frozen=True)
class Search:
    """In the annotation of a number: where `tune` looks for it, by ratio with `log`.

    `l2: Annotated[float, Field(gt=0), Search(10, 5000, log=True)] = 500`
    """

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """In the annotation of a setting: the values that `tune` tries."""

    values: tuple[bool | int | float | str | None, ...]


S = TypeVar("S", bound=Settings)


def changed(base: S, given: Given) -> S:
    """The base settings with the given ones in their place."""
    settings = base.model_dump()
    for key, value in given.items():
        inner = isinstance(value, Mapping) and isinstance(settings.get(key), dict)
        settings[key] = settings[key] | dict(value) if inner else value
    try:
        return type(base).model_validate(settings)
    except ValidationError as error:
        raise SettingsError(faults(error, base)) from None


def faults(error: ValidationError, base: Settings) -> str:
    """Which settings are wrong, in one line; of an unknown one, which there are."""
    found = []
    for fault in error.errors():
        if not fault["loc"]:  # settings that do not go together
            found.append(fault["msg"].removeprefix("Value error, "))
            continue
        *path, last = map(str, fault["loc"])
        name = ".".join([*path, last])
        if fault["type"] == "extra_forbidden":
            known = getattr(base, path[0]) if path else base
            found.append(f"there is no {name} (but {', '.join(known.model_dump()) or 'none'})")
        else:
            found.append(f"{name}={fault['input']}: {fault['msg']}")
    return "; ".join(found)
