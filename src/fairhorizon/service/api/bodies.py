"""Items, users, events and lists as they are sent and answered, with Gorse's names."""

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from fairhorizon.service.store.feedback import Event
from fairhorizon.service.store.items import Item
from fairhorizon.service.store.users import User
from fairhorizon.service.vocabulary import ID_LENGTH, LONGEST_LIST, MOST_CANDIDATES

LONGEST_TEXT = 10_000
DEEPEST = 20  # levels of labels
LARGEST_WHOLE = 2**63 - 1  # a larger number would be rounded by SQLite
LARGEST_SCORE = 1e9  # of a candidate: sums of such scores are still exact enough to compare
MOST_CATEGORIES = 100
LIST_ID = "^[0-9a-f]{32}$"
NO_YEAR = 1  # clients of Gorse in Go send the year 1 for a time that was not set


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


def _list_id(text: str) -> str:
    if not re.fullmatch(LIST_ID, text):
        raise ValueError("give the X-List-Id that came with the list")
    return text


Id = Annotated[str, Field(min_length=1, max_length=ID_LENGTH), AfterValidator(storable)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(storable)]
Json = Annotated[Any, AfterValidator(storable_json)]
Moment = Annotated[
    datetime | None,
    BeforeValidator(lambda given: None if given == "" else given),
    AfterValidator(_answerable),
]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Score = Annotated[Finite, Field(ge=-LARGEST_SCORE, le=LARGEST_SCORE)]
InCategories = Annotated[list[Id], Field(max_length=MOST_CATEGORIES)]
EventName = Annotated[str, Field(min_length=1, max_length=ID_LENGTH - 1), AfterValidator(storable)]
ListName = Annotated[str, Field(json_schema_extra={"pattern": LIST_ID}), AfterValidator(_list_id)]
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


class ItemBody(Body):
    """An item, as Gorse has it. Labels: an object, whose keys limits may be about, or a list."""

    ItemId: Id
    IsHidden: bool = False
    Labels: Json = None
    Categories: InCategories = []
    Timestamp: Moment = None
    Comment: Text = ""

    def item(self) -> Item:
        time = 0.0 if self.Timestamp is None else seconds(self.Timestamp)
        return Item(
            self.ItemId, self.IsHidden, tuple(self.Categories), self.Labels, time, self.Comment
        )

    @classmethod
    def of(cls, item: Item) -> "ItemBody":
        return cls.model_construct(
            ItemId=item.id,
            IsHidden=item.hidden,
            Labels=item.labels,
            Categories=list(item.categories),
            Timestamp=moment(item.time),
            Comment=item.comment,
        )


class ItemChange(Body):
    """What of an item is changed; what is left out stays."""

    IsHidden: bool | None = None
    Labels: Json = None
    Categories: InCategories | None = None
    Timestamp: Moment = None
    Comment: Text | None = None

    def columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {
            "hidden": self.IsHidden,
            "labels": self.Labels,
            "categories": self.Categories,
            "time": None if self.Timestamp is None else seconds(self.Timestamp),
            "comment": self.Comment,
        }
        return {name: value for name, value in columns.items() if value is not None}


class UserBody(Body):
    """A user, as Gorse has it. Subscribe is accepted and not kept."""

    UserId: Id
    Labels: Json = None
    Comment: Text = ""
    Subscribe: Json = Field(None, exclude=True)

    def user(self) -> User:
        return User(self.UserId, self.Labels, self.Comment)

    @classmethod
    def of(cls, user: User) -> "UserBody":
        return cls.model_construct(UserId=user.id, Labels=user.labels, Comment=user.comment)


class UserChange(Body):
    """What of a user is changed; what is left out stays. Subscribe is accepted and not kept."""

    Labels: Json = None
    Comment: Text | None = None
    Subscribe: Json = Field(None, exclude=True)

    def columns(self) -> dict[str, Any]:
        columns = {"labels": self.Labels, "comment": self.Comment}
        return {name: value for name, value in columns.items() if value is not None}


class FeedbackBody(Body):
    """An event. One with an EventId that was seen before changes nothing; without an EventId, one
    with the same type, user, item, time and list. ListId: the list that showed the item. Comment
    and Updated are accepted and not kept."""

    FeedbackType: Name
    UserId: Id
    ItemId: Id
    Value: Finite = 1.0
    Timestamp: Moment = None
    EventId: EventName | None = None
    ListId: ListName | None = None
    Comment: Text = Field("", exclude=True)
    Updated: Moment = Field(None, exclude=True)

    def event(self) -> Event:
        given = self.Timestamp
        time = None if given is None or given.year == NO_YEAR else seconds(given)
        event_id = None if self.EventId is None else f"+{self.EventId}"
        return Event(
            self.FeedbackType, self.UserId, self.ItemId, self.Value, time, event_id, self.ListId
        )

    @classmethod
    def of(cls, row: Any) -> "FeedbackBody":
        named = row.event_id.startswith("+")
        return cls.model_construct(
            FeedbackType=row.type,
            UserId=row.user_id,
            ItemId=row.item_id,
            Value=row.value,
            Timestamp=moment(row.time),
            EventId=row.event_id[1:] if named else None,
            ListId=row.list_id,
        )


class Affected(BaseModel):
    """How many rows a call has changed."""

    RowAffected: int


class Scored(BaseModel):
    """An item of a list and its score."""

    Id: str
    Score: float


class Candidate(Body):
    """An item and the score that somebody else gives it; higher is better."""

    Id: Id
    Score: Score


class RankBody(Body):
    """Candidates of another recommender, to be made a list under the limits."""

    UserId: Id
    Candidates: Annotated[list[Candidate], Field(min_length=1, max_length=MOST_CANDIDATES)]
    N: Annotated[int, Field(ge=1, le=LONGEST_LIST)] = 10
    Categories: Annotated[list[Id], Field(max_length=20)] = []
    Exclude: Annotated[list[Id], Field(max_length=1000)] = []
