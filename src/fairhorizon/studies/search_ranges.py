"""The range in which `tune` searches each setting; Optuna, an extra, is not needed here."""

from collections.abc import Iterator
from typing import Any

from fairhorizon.settings import Choice, Search, Settings


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
                # the first trial is the preset, which may lie outside of the usual range
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
