"""Limits: create, change, end, and how each is kept."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import Limit
from fairhorizon.service.admin.set_up import LimitInForceError, create_limit
from fairhorizon.service.api.auth import Administering, GuardedRoute, Reading, Serving
from fairhorizon.service.api.bodies import Body, moment, storable
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.budget.rules import UNIT, showings
from fairhorizon.service.monitoring.limit_status import AccountNow, is_kept, present_accounts
from fairhorizon.service.store import limits
from fairhorizon.service.vocabulary import Counts

router = APIRouter(route_class=GuardedRoute)

LimitId = Annotated[int, Path(ge=1, le=2**53)]
Ended = Annotated[bool, Query(description="Also those that have ended.")]


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


@router.get("/v1/limits", dependencies=[Reading], summary="All limits and how they are kept")
def get_limits(service: Serving, ended: Ended = False) -> list[LimitState]:
    with service.database.reading() as connection:
        rows = limits.every(connection) if ended else limits.in_force(connection)
        return _states(connection, rows)


@router.get("/v1/limits/{limit}", dependencies=[Reading], summary="A limit and how it is kept")
def get_limit(service: Serving, limit: LimitId) -> LimitState:
    with service.database.reading() as connection:
        return _states(connection, [_row(connection, limit)])[0]


@router.post(
    "/v1/limits", dependencies=[Administering], status_code=201, summary="Keep a limit from now on"
)
def post_limit(service: Serving, body: LimitBody) -> LimitState:
    return _created(service, body, instead_of=None)


@router.patch(
    "/v1/limits/{limit}",
    dependencies=[Administering],
    summary="Change a limit; it counts anew, as another limit",
)
def patch_limit(service: Serving, limit: LimitId, body: LimitChange) -> LimitState:
    with service.database.reading() as connection:
        row = _row(connection, limit)
    if row.ended_at is not None:
        raise ApiProblem(409, f"limit {limit} has ended", "create another: POST /v1/limits")
    present = LimitBody(
        Limit=row.text, Window=row.window, Counts=Counts(row.counts), Slack=row.slack // UNIT
    )
    whole = present.model_copy(update=body.model_dump(exclude_none=True))
    if whole == present:  # nothing to change: what was counted stays
        return get_limit(service, limit)
    return _created(service, whole, instead_of=limit)


@router.delete("/v1/limits/{limit}", dependencies=[Administering], summary="End a limit")
def delete_limit(service: Serving, limit: LimitId) -> LimitState:
    with service.database.writing() as connection:
        _row(connection, limit)
        if not limits.end(service.database, connection, limit):
            raise ApiProblem(409, f"limit {limit} has ended already", "nothing is left to do")
        return _states(connection, [_row(connection, limit)])[0]


def _created(service: Serving, body: LimitBody, instead_of: int | None) -> LimitState:
    try:
        number = create_limit(
            service.database,
            body.Limit,
            service.settings,
            window=body.Window,
            counts=body.Counts,
            slack=body.Slack,
            instead_of=instead_of,
        )
    except LimitInForceError as error:
        raise ApiProblem(409, str(error), "change or end that one") from None
    with service.database.reading() as connection:
        return _states(connection, [_row(connection, number)])[0]


def _row(connection: Connection, number: int) -> Any:
    row = limits.get(connection, number)
    if row is None:
        raise ApiProblem(404, f"there is no limit {number}", "GET /v1/limits lists them")
    return row


def _states(connection: Connection, rows: list[Any]) -> list[LimitState]:
    found = present_accounts(connection, [row.id for row in rows])
    return [_state(row, [one for one in found if one.limit_id == row.id]) for row in rows]


def _state(row: Any, found: list[AccountNow]) -> LimitState:
    limit = Limit.parse(row.text)
    return LimitState(
        Id=row.id,
        Limit=row.text,
        Promised=not limit.is_floor,
        Window=row.window,
        WindowName=found[0].window if found else None,
        Counts=Counts(row.counts),
        Slack=showings(row.slack),
        CreatedAt=moment(row.created_at),
        EndedAt=None if row.ended_at is None else moment(row.ended_at),
        Shown=showings(found[0].shown) if found else 0,
        Kept=all(is_kept(one) for one in found) if found else None,
        Groups=[
            GroupState(
                Group=one.group,
                Asked=one.share,
                Reached=one.reached,
                Spent=showings(one.used),
                Charged=showings(one.charged),
                Pending=showings(one.pending),
                Price=one.price,
            )
            for one in found
        ],
    )
