"""What users did: POST or PUT /api/feedback, each event once."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import AfterValidator, BaseModel, Field

from fairhorizon.service.api.auth import Feeding, GuardedRoute, Reading, Serving
from fairhorizon.service.api.bodies import (
    Affected,
    Body,
    Finite,
    Id,
    Moment,
    Name,
    Text,
    moment,
    seconds,
    storable,
)
from fairhorizon.service.budget.impressions import record_feedback
from fairhorizon.service.settings import ID_LENGTH, MOST_ROWS
from fairhorizon.service.store import feedback
from fairhorizon.service.store.database import FEEDBACK_AFTER_COMMIT, crash_point
from fairhorizon.service.store.feedback import Event

NO_YEAR = 1  # clients of Gorse in Go send the year 1 for a time that was not set
LIST_ID = "^[0-9a-f]{32}$"
CURSOR = "^[0-9]{0,15}$"
CURSOR_HEADER = "X-Cursor"

router = APIRouter(route_class=GuardedRoute)


def _list_id(text: str) -> str:
    if not re.fullmatch(LIST_ID, text):
        raise ValueError("give the X-List-Id that came with the list")
    return text


EventName = Annotated[str, Field(min_length=1, max_length=ID_LENGTH - 1), AfterValidator(storable)]
ListName = Annotated[str, Field(json_schema_extra={"pattern": LIST_ID}), AfterValidator(_list_id)]


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
        # Ids of callers begin with "+" and those by content with "-", so that they never meet.
        event_id = None if self.EventId is None else f"+{self.EventId}"
        return Event(
            self.FeedbackType, self.UserId, self.ItemId, self.Value, time, event_id, self.ListId
        )

    @classmethod
    def from_row(cls, row: Any) -> "FeedbackBody":
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


def _numbered(cursor: str) -> str:
    if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 15):
        raise ValueError("give that of a page, or leave it out to begin again")
    return cursor


Events = Annotated[list[FeedbackBody], Field(max_length=MOST_ROWS)]
Cursor = Annotated[
    str,
    Query(description="Of the page before.", json_schema_extra={"pattern": CURSOR}),
    AfterValidator(_numbered),
]
PageLength = Annotated[int, Query(ge=1, le=1000)]
Most = Annotated[int, Query(ge=1, le=MOST_ROWS)]
Kind = Annotated[Name, Path(alias="type", description="The FeedbackType.")]
User = Annotated[Id, Path()]
Item = Annotated[Id, Path()]
NEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            CURSOR_HEADER: {
                "description": "For the events after these; empty behind the last.",
                "schema": {"type": "string"},
            }
        }
    }
}


class FeedbackPage(BaseModel):
    """Some events; an empty cursor is that of the last page."""

    Cursor: str
    Feedback: list[FeedbackBody]


@router.post("/api/feedback", dependencies=[Feeding], summary="Record events, each once")
def insert_feedback(service: Serving, body: Events) -> Affected:
    """Record events; those that were seen before change nothing.

    They are kept when this is answered, and the user's next list knows them.
    """
    events = [one.event() for one in body]
    added = record_feedback(service.database, events, read=service.settings.read)
    # Tests end the process here: what is committed counts, whether or not it was answered.
    crash_point(FEEDBACK_AFTER_COMMIT)
    service.metrics.events.inc(added)
    return Affected(RowAffected=added)


@router.put("/api/feedback", dependencies=[Feeding], summary="The same as POST")
def put_feedback(service: Serving, body: Events) -> Affected:
    return insert_feedback(service, body)


@router.get("/api/feedback", dependencies=[Reading], summary="Events, page by page")
def get_feedback(service: Serving, cursor: Cursor = "", n: PageLength = 100) -> FeedbackPage:
    return _page(service, cursor, n)


@router.get("/api/feedback/{type:id}", dependencies=[Reading], summary="Events of one type")
def get_feedback_of_type(
    service: Serving, kind: Kind, cursor: Cursor = "", n: PageLength = 100
) -> FeedbackPage:
    return _page(service, cursor, n, kind=kind)


@router.get(
    "/api/user/{user:id}/feedback",
    dependencies=[Reading],
    responses=NEXT,
    summary="Events of a user",
)
def get_feedback_of_user(
    service: Serving, response: Response, user: User, cursor: Cursor = "", n: Most = 1000
) -> list[FeedbackBody]:
    return _listed(response, _page(service, cursor, n, user=user))


@router.get(
    "/api/user/{user:id}/feedback/{type:id}",
    dependencies=[Reading],
    responses=NEXT,
    summary="Events of a user and one type",
)
def get_feedback_of_user_and_type(
    service: Serving,
    response: Response,
    user: User,
    kind: Kind,
    cursor: Cursor = "",
    n: Most = 1000,
) -> list[FeedbackBody]:
    return _listed(response, _page(service, cursor, n, user=user, kind=kind))


@router.get(
    "/api/item/{item:id}/feedback",
    dependencies=[Reading],
    responses=NEXT,
    summary="Events of an item",
)
def get_feedback_of_item(
    service: Serving, response: Response, item: Item, cursor: Cursor = "", n: Most = 1000
) -> list[FeedbackBody]:
    return _listed(response, _page(service, cursor, n, item=item))


@router.get(
    "/api/item/{item:id}/feedback/{type:id}",
    dependencies=[Reading],
    responses=NEXT,
    summary="Events of an item and one type",
)
def get_feedback_of_item_and_type(
    service: Serving,
    response: Response,
    item: Item,
    kind: Kind,
    cursor: Cursor = "",
    n: Most = 1000,
) -> list[FeedbackBody]:
    return _listed(response, _page(service, cursor, n, item=item, kind=kind))


def _page(
    service: Serving,
    cursor: str,
    n: int,
    *,
    user: str | None = None,
    item: str | None = None,
    kind: str | None = None,
) -> FeedbackPage:
    with service.database.reading() as connection:
        rows = feedback.page(connection, int(cursor or 0), n, user=user, item=item, kind=kind)
    # A full page may be the last one; the next is empty then.
    following = str(rows[-1].id) if len(rows) == n else ""
    return FeedbackPage(Cursor=following, Feedback=[FeedbackBody.from_row(row) for row in rows])


def _listed(response: Response, page: FeedbackPage) -> list[FeedbackBody]:
    """As Gorse answers it: without a page around the events."""
    response.headers[CURSOR_HEADER] = page.Cursor
    return page.Feedback
