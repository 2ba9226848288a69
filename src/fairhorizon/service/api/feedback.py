"""What users did: POST or PUT /api/feedback, each event once."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from fairhorizon.service.api.access import Feeding, Reading, Serving
from fairhorizon.service.api.bodies import Affected, FeedbackBody, Id
from fairhorizon.service.api.problems import Problem
from fairhorizon.service.crash_points import FEEDBACK_AFTER_COMMIT, crash_point
from fairhorizon.service.events import take
from fairhorizon.service.store import feedback
from fairhorizon.service.vocabulary import MOST_ROWS

router = APIRouter()

Events = Annotated[list[FeedbackBody], Field(max_length=MOST_ROWS)]
Cursor = Annotated[str, Query(pattern="^[0-9]{0,15}$", description="Of the page before.")]
PageLength = Annotated[int, Query(ge=1, le=1000)]


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
    added = take(service.database, events, read=service.settings.read)
    crash_point(FEEDBACK_AFTER_COMMIT)
    service.metrics.events.inc(added)
    return Affected(RowAffected=added)


@router.put("/api/feedback", dependencies=[Feeding], summary="The same as POST")
def put_feedback(service: Serving, body: Events) -> Affected:
    return insert_feedback(service, body)


@router.get("/api/feedback", dependencies=[Reading], summary="Events, page by page")
def get_feedback(service: Serving, cursor: Cursor = "", n: PageLength = 100) -> FeedbackPage:
    return _page(service, cursor, n)


@router.get("/api/user/{user:path}/feedback", dependencies=[Reading], summary="Events of a user")
def get_feedback_of_user(
    service: Serving, user: Annotated[Id, Path()], cursor: Cursor = "", n: PageLength = 100
) -> FeedbackPage:
    return _page(service, cursor, n, user=user)


@router.get("/api/item/{item:path}/feedback", dependencies=[Reading], summary="Events of an item")
def get_feedback_of_item(
    service: Serving, item: Annotated[Id, Path()], cursor: Cursor = "", n: PageLength = 100
) -> FeedbackPage:
    return _page(service, cursor, n, item=item)


def _page(
    service: Serving, cursor: str, n: int, *, user: str | None = None, item: str | None = None
) -> FeedbackPage:
    if not cursor.isdecimal() and cursor:
        raise Problem(422, "this is no cursor of a page", "leave it out to begin again")
    with service.database.reading() as connection:
        rows = feedback.page(connection, int(cursor or 0), n, user=user, item=item)
    following = str(rows[-1].id) if len(rows) == n else ""
    return FeedbackPage(Cursor=following, Feedback=[FeedbackBody.of(row) for row in rows])
