"""Settings given as key=value."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer


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


def written_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The other way round: {"rounds": 50, "pmf": {"dim": 32}} -> "rounds=50", "pmf.dim=32"."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from written_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value, default=str)}"
