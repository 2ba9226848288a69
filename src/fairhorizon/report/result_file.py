"""A result as JSON, for programs."""

from pathlib import Path
from typing import Any
from typing import Protocol as Interface

from fairhorizon.files import write_json


class JsonResult(Interface):
    """Any result that has a form in JSON."""

    def to_json(self) -> dict[str, Any]: ...


def write_result(result: JsonResult, *files: Path | None) -> None:
    """Write it to every file that is asked for."""
    for file in files:
        if file is not None:
            write_json(file, result.to_json())
