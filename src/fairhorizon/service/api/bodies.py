"""What is sent and answered, with Gorse's names where Gorse has one."""

import math
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from fairhorizon.service.store.feedback import Event
from fairhorizon.service.store.items import Item
from fairhorizon.service.store.users import User
from fairhorizon.service.vocabulary import ID_LENGTH, LONGEST_LIST, MOST_CANDIDATES, Counts

LONGEST_TEXT = 10_000
DEEPEST = 20  # levels of labels


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


Id = Annotated[str, Field(min_length=1, max_length=ID_LENGTH), AfterValidator(storable)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(storable)]
Json = Annotated[Any, AfterValidator(storable_json)]
Moment = Annotated[datetime | None, BeforeValidator(lambda given: None if given == "" else given)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Counted = Counts  # a field is called as Gorse would have it
Name = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(storable)]


class Body(BaseModel):
    """Unknown fields are refused: a misspelt one would be lost without a word."""

    model_config = ConfigDict(extra="forbid")


class ItemBody(Body):
    """An item, as Gorse has it. Labels: an object, whose keys limits may be about, or a list."""

    ItemId: Id
    IsHidden: bool = False
    Labels: Json = None
    Categories: Annotated[list[Id], Field(max_length=100)] = []
    Timestamp: Moment = None
    Comment: Text = ""

    def item(self) -> Item:
        time = 0.0 if self.Timestamp is None else seconds(self.Timestamp)
        return Item(
            self.ItemId, self.IsHidden, tuple(self.Categories), self.Labels, time, self.Comment
        )

    @classmethod
    def of(cls, item: Item) -> "ItemBody":
        return cls(
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
    Categories: Annotated[list[Id], Field(max_length=100)] | None = None
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
    """A user, as Gorse has it."""

    UserId: Id
    Labels: Json = None
    Comment: Text = ""

    def user(self) -> User:
        return User(self.UserId, self.Labels, self.Comment)

    @classmethod
    def of(cls, user: User) -> "UserBody":
        return cls(UserId=user.id, Labels=user.labels, Comment=user.comment)


class UserChange(Body):
    """What of a user is changed; what is left out stays."""

    Labels: Json = None
    Comment: Text | None = None

    def columns(self) -> dict[str, Any]:
        columns = {"labels": self.Labels, "comment": self.Comment}
        return {name: value for name, value in columns.items() if value is not None}


class FeedbackBody(Body):
    """An event. One with an EventId that was seen before changes nothing; without an EventId, one
    with the same type, user, item, time and list. ListId: the list that showed the item."""

    FeedbackType: Name
    UserId: Id
    ItemId: Id
    Value: Finite = 1.0
    Timestamp: Moment = None
    EventId: Annotated[str, Field(min_length=1, max_length=ID_LENGTH - 1)] | None = None
    ListId: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None
    Comment: Text = ""

    def event(self) -> Event:
        time = None if self.Timestamp is None else seconds(self.Timestamp)
        event_id = None if self.EventId is None else f"+{storable(self.EventId)}"
        return Event(
            self.FeedbackType, self.UserId, self.ItemId, self.Value, time, event_id, self.ListId
        )

    @classmethod
    def of(cls, row: Any) -> "FeedbackBody":
        named = row.event_id.startswith("+")
        return cls(
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
    Score: Finite


class RankBody(Body):
    """Candidates of another recommender, to be made a list under the limits."""

    UserId: Id
    Candidates: Annotated[list[Candidate], Field(min_length=1, max_length=MOST_CANDIDATES)]
    N: Annotated[int, Field(ge=1, le=LONGEST_LIST)] = 10
    Categories: Annotated[list[Id], Field(max_length=20)] = []
    Exclude: Annotated[list[Id], Field(max_length=1000)] = []


class LimitBody(Body):
    """A limit in the language of limits, such as popular<=0.4. A floor (>=) is steered by its
    price and not promised. Window: always, day, or 10000 showings. Counts: served or confirmed.
    Slack: C, by how many showings replicas together may exceed it for a moment."""

    Limit: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(storable)]
    Window: Annotated[str, Field(max_length=32)] | None = None
    Counts: Counted | None = None
    Slack: Annotated[int, Field(ge=1, le=10**9)] | None = None


class LimitChange(Body):
    """What of a limit is changed. It then counts anew, as another limit."""

    Limit: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(storable)] | None = (
        None
    )
    Window: Annotated[str, Field(max_length=32)] | None = None
    Counts: Counted | None = None
    Slack: Annotated[int, Field(ge=1, le=10**9)] | None = None


class GroupState(BaseModel):
    """One group under a limit in the present window; counts in showings."""

    Group: str
    Asked: float
    Reached: float | None
    Spent: float
    Charged: float
    Pending: float
    Price: float


class LimitState(BaseModel):
    """A limit and how it is kept. Kept: the promise holds; of a floor, that it is reached now."""

    Id: int
    Limit: str
    Promised: bool
    Window: str
    WindowName: str | None
    Counts: Counted
    Slack: float
    CreatedAt: datetime
    EndedAt: datetime | None
    Shown: float
    Kept: bool | None
    Groups: list[GroupState]


class ModelBody(Body):
    """A run folder of `fairhorizon fit --all` or `Model.save`, on the machine of the service."""

    Folder: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(storable)]


class ModelState(BaseModel):
    """A model and whether it is served."""

    Id: int
    Folder: str
    Method: str
    Current: bool
    RegisteredAt: datetime
    PromotedAt: datetime | None


class JobBody(Body):
    """Work that can be asked for: `relabel` begins an epoch with the labels of now."""

    Kind: Annotated[str, Field(pattern="^relabel$")]


class JobAsked(BaseModel):
    """The number of a job: GET /v1/jobs/{Id} says how far it is."""

    Id: int


class JobStatus(BaseModel):
    """A job and how far it is."""

    Id: int
    Kind: str
    State: str
    Progress: float
    Message: str
    CreatedAt: datetime
    EndedAt: datetime | None
