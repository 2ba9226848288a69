"""What a result was made by: the command, the versions of programs, and the data it was given."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fairhorizon import __version__
from fairhorizon.datasets import DataSpec, fingerprints, open_dataset

PACKAGES = ("torch", "numpy", "scipy", "polars")  # that numbers depend on
PARTS = ("train", "validation", "test")


def made_by(
    command: str, data: DataSpec, cache_dir: Path | None, seeds: Sequence[int] = ()
) -> dict[str, Any]:
    """For the JSON file of a study. Equal fingerprints mean equal data, whatever it is called."""
    split = open_dataset(data, cache_dir).split
    logs = [getattr(split, part) for part in PARTS]
    return {
        "command": command,
        "version": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "data": {
            "source": data.source,
            "split": data.cut,
            "ties": data.ties,
            "rows": dict(zip(PARTS, map(len, logs), strict=True)),
            "fingerprints": dict(zip(PARTS, fingerprints(split), strict=True)),
        },
        "seeds": list(seeds),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
