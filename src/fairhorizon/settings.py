"""The base of every method's settings, and where a search looks for good ones."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


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
