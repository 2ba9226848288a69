"""The base of every method's settings, and where a search looks for good ones."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from fairhorizon.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Given = Mapping[str, Any]  # settings by name, those of a part nested under the part's name
NONE_WORDS = ("none", "null")  # in lower case

# pydantic's names of constraints and types, and the words of our messages.
BOUNDS = {"le": "at most", "lt": "a number below", "ge": "at least", "gt": "a number above"}
KINDS = {
    "int_": "a whole number",
    "float_": "a number",
    "finite_number": "a finite number",
    "bool_": "true or false",
    "string_type": "text",
    "tuple_type": "a list, as in [64,64]",
    "list_type": "a list, as in [64,64]",
    "dict_type": "its settings by name, as in dim=32",
    "dataclass_type": "its fields by name, as in share=0.4",
    "model_type": "its settings by name, as in dim=32",
}


class SettingsError(ConfigError):
    """A setting that a method does not have or cannot take."""


class Settings(BaseModel):
    """Frozen, and an unknown setting is an error; the default of a setting stands beside it.

    What a setting does is said by the string below it, which `help` and the JSON schema show.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    # Editors and type checkers see the parameters that pydantic derives from the fields.
    if not TYPE_CHECKING:

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise SettingsError(faults(error, type(self).model_construct())) from None

        # So that pydantic validates nested settings itself, and reports their faults with its own.
        __init__.__pydantic_base_init__ = True

    @classmethod
    def from_file(cls, content: Given) -> Self:
        """The settings that a model file holds: all of them, as defaults change with versions."""
        if missing := sorted(cls.model_fields.keys() - content.keys()):
            raise ValueError(f"{', '.join(missing)} of the settings is missing")
        return cls.model_validate(content)


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

    values: tuple[bool | int | float | str | tuple[float, ...] | None, ...]


S = TypeVar("S", bound=Settings)


def changed(base: S, given: Given) -> S:
    """The base settings with the given ones in their place."""
    settings = base.model_dump()
    for key, value in given.items():
        # One level deep: the settings of a part change one by one, and the others keep their
        # values.
        inner = isinstance(value, Mapping) and isinstance(settings.get(key), dict)
        settings[key] = settings[key] | dict(value) if inner else value
    try:
        return type(base).model_validate(settings)
    except ValidationError as error:
        try:
            # The word "none" is text where text is allowed. Only where it was refused does it mean
            # no value.
            return type(base).model_validate(_without_none(settings, error))
        except ValidationError:
            raise SettingsError(faults(error, base)) from None


def _without_none(settings: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """The settings with None for the word `none` wherever the word itself was refused."""
    mended = {key: dict(v) if isinstance(v, dict) else v for key, v in settings.items()}
    for fault in error.errors():
        if str(fault["input"]).lower() not in NONE_WORDS or not fault["loc"]:
            continue
        *path, last = map(str, fault["loc"])
        # Walk down to the settings that hold the refused value; a list on the way ends the walk.
        part = mended
        for name in path:
            part = part.get(name, {})
            if not isinstance(part, dict):
                break
        else:
            part[last] = None
    return mended


def faults(error: ValidationError, base: Settings | None = None) -> str:
    """Which settings are wrong, in one line; of an unknown one, which there are."""
    found: dict[str, list[str]] = {}
    for fault in error.errors():
        if not fault["loc"]:  # settings that do not go together
            found[expected(fault)] = []
            continue
        name, part = _place(fault["loc"], base)
        if fault["type"] == "extra_forbidden":
            known = "" if part is None else f" (but {', '.join(part.model_dump()) or 'none'})"
            found[f"there is no {name}{known}"] = []
        elif fault["type"] == "missing":
            found[f"{name} is missing"] = []
        else:
            # Of a union such as str | int there is a fault for each type.
            found.setdefault(f"{name}={fault['input']}", []).append(expected(fault))
    return "; ".join(
        f"{what}: give {' or '.join(dict.fromkeys(wanted))}" if wanted else what
        for what, wanted in found.items()
    )


def _place(loc: tuple[int | str, ...], base: Settings | None) -> tuple[str, Settings | None]:
    """The dotted name of a setting, and the settings that it belongs to.

    Within a setting pydantic adds the type that it tried, which is no name of ours.
    """
    first, *inner = loc
    part = getattr(base, str(first), None)
    if not inner:
        return str(first), base
    if isinstance(part, Settings):
        name, owner = _place(tuple(inner), part)
        return f"{first}.{name}", owner
    places = [str(place) for place in inner if isinstance(place, int)]
    return ".".join([str(first), *places]), base


def expected(fault: "ErrorDetails") -> str:
    """What to type instead of a wrong value, from a fault that pydantic found."""
    context = fault.get("ctx", {})
    for constraint, words in BOUNDS.items():
        if constraint in context:
            return f"{words} {context[constraint]:g}"
    kind = fault["type"]
    if kind in ("literal_error", "enum"):
        choices = str(context["expected"]).replace(" or ", ", ")
        return f"one of {choices.replace(chr(39), '')}"
    if kind in ("too_short", "too_long"):
        least, most = context.get("min_length"), context.get("max_length")
        return f"at least {least} values" if most is None else f"at most {most} values"
    for start, words in KINDS.items():
        if kind.startswith(start):
            return words
    return re.sub(r"^(Value error, |Assertion failed, |Input should (be )?)", "", fault["msg"])


def searched(config: Settings, prefix: str = "") -> Iterator[tuple[str, Search | Choice]]:
    """The search range of each setting of the configuration, by dotted name.

    The ends of a range are whole numbers if the setting is one, else decimal numbers.
    """
    for name, entry in type(config).model_fields.items():
        inner = getattr(config, name)
        if isinstance(inner, Settings):
            yield from searched(inner, f"{prefix}{name}.")
        for mark in entry.metadata:
            if isinstance(mark, Choice):
                values = tuple(value for value in mark.values if _is_valid(config, name, value))
                yield prefix + name, Choice(values)
            elif isinstance(mark, Search):
                # The first trial is the present value, which may lie outside of the usual range.
                ends = [mark.low, mark.high] if inner is None else [mark.low, mark.high, inner]
                number = int if entry.annotation is int else float
                yield prefix + name, Search(number(min(ends)), number(max(ends)), log=mark.log)


def _is_valid(config: Settings, name: str, value: Any) -> bool:
    """Whether a setting can have the value together with the other settings."""
    try:
        type(config).model_validate({**config.model_dump(), name: value})
    except ValueError:
        return False
    return True
