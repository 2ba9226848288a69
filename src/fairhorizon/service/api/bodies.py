"""What all requests have in common: ids in paths, fields that every database can keep, a strict
base of bodies."""

import math
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, unquote

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from starlette.convertors import Convertor, register_url_convertor

from fairhorizon.service.settings import ID_LENGTH

LONGEST_TEXT = 10_000
DEEPEST = 20  # levels of labels
LARGEST_WHOLE = 2**63 - 1  # a larger number would be rounded by SQLite
MOST_CATEGORIES = 100


class IdConvertor(Convertor[str]):
    """One part of a path, as in /api/item/{item:id}."""

    # A slash of an id comes as %2F, which `routed` leaves in the path until it is split.
    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("id", IdConvertor())


def storable(text: str) -> str:
    """Text that every database can keep."""
    if "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("give text without NUL characters and lone surrogates")
    return text


def storable_json(content: Any, depth: int = 0) -> Any:
    """JSON that every database can keep."""
    if depth > DEEPEST:
        raise ValueError(f"give at most {DEEPEST} levels")
    if isinstance(content, str):
        storable(content)
    elif isinstance(content, float) and not math.isfinite(content):
        raise ValueError("give finite numbers")
    elif isinstance(content, int) and abs(content) > LARGEST_WHOLE:
        raise ValueError(f"give whole numbers up to {LARGEST_WHOLE}")
    elif isinstance(content, dict):
        for name, value in content.items():
            storable(name)
            storable_json(value, depth + 1)
    elif isinstance(content, list):
        for value in content:
            storable_json(value, depth + 1)
    return content


def seconds(moment: datetime) -> float:
    """Since 1970; without a zone it is UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def moment(time: float) -> datetime:
    return datetime.fromtimestamp(time, UTC)


def _answerable(given: datetime | None) -> datetime | None:
    """A time that is one in UTC too."""
    try:
        return given if given is None else moment(seconds(given))
    except (OverflowError, ValueError):
        raise ValueError("give a time of the years 1 to 9999") from None


Id = Annotated[str, Field(min_length=1, max_length=ID_LENGTH), AfterValidator(storable)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(storable)]
Json = Annotated[Any, AfterValidator(storable_json)]
Moment = Annotated[
    datetime | None,
    # An empty text is as good as no time.
    BeforeValidator(lambda given: None if given == "" else given),
    AfterValidator(_answerable),
]
Finite = Annotated[float, Field(allow_inf_nan=False)]
InCategories = Annotated[list[Id], Field(max_length=MOST_CATEGORIES)]
Name = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(storable)]


class Body(BaseModel):
    """Unknown fields are refused: a misspelt one would be lost without a word. A field that is null
    is as good as left out, because some clients of Gorse send all fields."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}


class Affected(BaseModel):
    """How many rows a call has changed."""

    RowAffected: int
