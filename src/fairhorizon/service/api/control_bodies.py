"""Limits, models and jobs as they are sent and answered."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from fairhorizon.service.api.bodies import Body, storable
from fairhorizon.service.vocabulary import Counts

Counted = Counts  # a field is called as Gorse would have it
LimitText = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(storable)]
WindowText = Annotated[str, Field(max_length=32), AfterValidator(storable)]
Showings = Annotated[int, Field(ge=1, le=10**9)]


class LimitBody(Body):
    """A limit in the language of limits, such as popular<=0.4. A floor (>=) is steered by its
    price and not promised. Window: always, day, or 10000 showings. Counts: served or confirmed.
    Slack: C, by how many showings replicas together may exceed it for a moment."""

    Limit: LimitText
    Window: WindowText | None = None
    Counts: Counted | None = None
    Slack: Showings | None = None


class LimitChange(Body):
    """What of a limit is changed. It then counts anew, as another limit."""

    Limit: LimitText | None = None
    Window: WindowText | None = None
    Counts: Counted | None = None
    Slack: Showings | None = None


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

    Kind: Literal["relabel"]


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
