"""Where `tune` looks for each setting; nothing here needs Optuna, which is an extra."""

from collections.abc import Iterator
from typing import Any

from fairhorizon.settings import Choice, Search, Settings


def searched(config: Settings, prefix: str = "") -> Iterator[tuple[str, Search | Choice]]:
    """Where each setting of the configuration is looked for, by dotted name.

    The ends of a range are whole numbers if the setting is one, else decimal numbers.
    """
    for name, entry in type(config).model_fields.items():
        inner = getattr(config, name)
        if isinstance(inner, Settings):
            yield from searched(inner, f"{prefix}{name}.")
        for mark in entry.metadata:
            if isinstance(mark, Choice):
                values = tuple(value for value in mark.values if _goes_with(config, name, value))
                yield prefix + name, Choice(values)
            elif isinstance(mark, Search):
                # a preset may lie outside of where one would look: the first trial is the preset
                ends = [mark.low, mark.high] if inner is None else [mark.low, mark.high, inner]
                number = int if entry.annotation is int else float
                yield prefix + name, Search(number(min(ends)), number(max(ends)), log=mark.log)


def _goes_with(config: Settings, name: str, value: Any) -> bool:
    """Whether a setting can have the value beside the other settings as they are."""
    try:
        type(config).model_validate({**config.model_dump(), name: value})
    except ValueError:
        return False
    return True
