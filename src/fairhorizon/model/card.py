"""What run.json says about a fitted model: how it was fitted, on which data, which files it has.

No torch here, so that a command tells at once that a folder holds no model.
"""

import json
import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairhorizon import __version__
from fairhorizon.data.interactions import Interactions
from fairhorizon.errors import ModelError
from fairhorizon.settings import faults

CARD, CHECKPOINT = "run.json", "checkpoint.safetensors"
FORMAT = 1  # of run.json


class LogInfo(BaseModel):
    """What log.parquet does not say about its log: name, columns, treatment of repeats."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    columns: dict[str, str]
    repeats: Literal["first", "last"]

    @classmethod
    def from_log(cls, log: Interactions) -> Self:
        return cls.model_validate(
            {"name": log.name, "columns": dict(log.columns), "repeats": log.repeats}
        )


class ModelCard(BaseModel):
    """The content of run.json. Each method adds what describes it."""

    model_config = ConfigDict(extra="allow", strict=True)

    format: int
    fairhorizon: str
    status: Literal["finished", "interrupted"]
    method: str
    seed: int = Field(ge=0)
    data: dict[str, Any]
    limits: list[str]
    item_table: str | None
    files: dict[str, str]  # sha256 by name
    asked: str | None = None  # the method as it was asked for, with its level
    log: LogInfo | None = None  # None: the folder has no log of its own

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The card of a model's folder; ModelError if it is missing or of no use."""
        file = folder / CARD
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            resumable = (folder / CHECKPOINT).exists()
            remedy = "continue with --resume" if resumable else "fairhorizon fit makes one"
            raise ModelError(f"{folder}: no model here, {CARD} is missing ({remedy})") from None
        except (OSError, ValueError) as error:
            raise ModelError(f"{file}: cannot be read: {error} (fit it again)") from error
        if not isinstance(content, dict) or "data" not in content:
            raise ModelError(f"{file}: not the card of a model (fit it again)")
        # Before anything else is looked at: a later format may have other fields.
        if (version := content.get("format")) != FORMAT:
            raise ModelError(
                f"{file}: format {version}, this version reads {FORMAT} (fit it again)"
            )
        try:
            card = cls.model_validate(content)
        except ValidationError as error:
            text = f"{file}: not the card of a model: {faults(error)} (fit it again)"
            raise ModelError(text) from None
        if _numbers(card.fairhorizon) > _numbers(__version__):
            raise ModelError(
                f"{file}: written by FairHorizon {card.fairhorizon or '?'}, and this is "
                f"{__version__} (install the later version, or fit it again)"
            )
        return card


def _numbers(version: str) -> tuple[float, ...]:
    """A version as numbers to compare; a text that is no version is later than all."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(float, found[0].split("."))) if found else (float("inf"),)
