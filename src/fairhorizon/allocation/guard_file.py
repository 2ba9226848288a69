"""The file of an `ExposureGuard`: a JSON object with its settings and its state."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    ValidationError,
    model_validator,
)

from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.exposure.place_rule import PlaceRule

LARGEST = 1e300  # value or price; sums and differences of these are still finite
Level = Annotated[float, Field(ge=0, le=LARGEST)]


class StoredGuard(BaseModel):
    """What a guard is at one moment, between two requests."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: Literal["exposure-guard"] = "exposure-guard"
    version: Literal[1] = 1
    share: Annotated[float, Field(ge=0, le=1)]
    rule: PlaceRule | None = None  # None: at most `share` of all showings, which count alike
    step: Level
    price: Level
    spread: Annotated[float, Field(ge=0)]
    shown: NonNegativeInt | NonNegativeFloat
    sensitive: NonNegativeInt | NonNegativeFloat
    requests: NonNegativeInt

    @model_validator(mode="after")
    def _group_is_a_part(self) -> Self:
        if self.sensitive > self.shown:
            raise ValueError(f"{self.sensitive} showings of the group among {self.shown} in all")
        whole = isinstance(self.shown, int) and isinstance(self.sensitive, int)
        if self.rule is None and not whole:
            raise ValueError(f"{self.shown} or {self.sensitive} is no whole number of showings")
        if self.rule is not None and self.rule.share != self.share:
            raise ValueError(f"a share of {self.share}, and a rule of {self.rule.share}")
        return self


def read_guard(path: Path) -> StoredGuard:
    """The content of a file; a ModelError if it is missing, truncated or something else."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read: {error.strerror} (guard.save writes it)"
        ) from error
    try:
        return StoredGuard.model_validate_json(content)
    except ConfigError as error:
        raise ModelError(f"{path}: not the file of a guard: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"][:1])  # not which kind of number
        raise ModelError(
            f"{path}: truncated, or not the file of a guard: {where}{first['msg']}"
            " (give a file that guard.save has written)"
        ) from error
