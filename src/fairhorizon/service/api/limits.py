"""Limits: create, change, end, how each is kept, and exposure over time."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import Limit
from fairhorizon.service.admin.set_up import LimitInForceError, create_limit
from fairhorizon.service.api.auth import Administering, GuardedRoute, Reading, Serving
from fairhorizon.service.api.bodies import Body, Moment, moment, seconds, storable
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.budget.rules import UNIT, showings
from fairhorizon.service.monitoring.counts import HOUR, LONGEST_STEP, SHORTEST_STEP, Period
from fairhorizon.service.monitoring.exposure import ExposureReport, exposure
from fairhorizon.service.monitoring.limits import AccountNow, LimitSeries, is_kept, present_accounts
from fairhorizon.service.settings import Counts
from fairhorizon.service.store.state import (
    all_limits,
    end_limit,
    limit_row,
    limits_in_force,
    read_state,
)

router = APIRouter(route_class=GuardedRoute)

LimitId = Annotated[int, Path(ge=1, le=2**53)]
Ended = Annotated[bool, Query(description="Also those that have ended.")]


# Within a body the field Counts hides the class of this name.
Counted = Counts
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
        rows = all_limits(connection) if ended else limits_in_force(connection)
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
    # The whole limit as a body, with what was sent in place of what there is.
    present = LimitBody(
        Limit=row.text, Window=row.window, Counts=Counts(row.counts), Slack=row.slack // UNIT
    )
    whole = present.model_copy(update=body.model_dump(exclude_none=True))
    # Nothing to change: what was counted stays.
    if whole == present:
        return get_limit(service, limit)
    return _created(service, whole, instead_of=limit)


@router.delete("/v1/limits/{limit}", dependencies=[Administering], summary="End a limit")
def delete_limit(service: Serving, limit: LimitId) -> LimitState:
    with service.database.writing() as connection:
        _row(connection, limit)
        if not end_limit(service.database, connection, limit):
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
    row = limit_row(connection, number)
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


MOST_PROVIDERS = 1000


From = Annotated[
    Moment, Query(alias="from", description="Begin, in ISO 8601; without it a day before `to`.")
]
To = Annotated[Moment, Query(description="End, in ISO 8601; without it now.")]
Step = Annotated[
    int | None,
    Query(
        ge=SHORTEST_STEP,
        le=LONGEST_STEP,
        description="Seconds of a point, rounded up to minutes; without it there are about 100.",
    ),
]


class PointBody(BaseModel):
    """One step that begins at Time. Shown and Spent are showings, as the limit weighs them, of
    everything and of the group. Price: the last one; null where nothing of the group was shown."""

    Time: datetime
    Shown: float
    Spent: float
    Share: float
    Price: float | None


class SeriesBody(BaseModel):
    """One group under one limit. Steps in which nothing was shown have no point."""

    Limit: str
    Id: int
    Group: str
    Asked: float
    IsFloor: bool
    Points: list[PointBody]


class ProviderBody(BaseModel):
    """Showings of the items of a provider. Shares add up to more than 1 where items have several
    providers."""

    Provider: str
    Shown: int
    Share: float | None


class ChurnBody(BaseModel):
    """Items that entered or left the popular group with an epoch of labels, and the share of all
    showings so far that these items hold."""

    Epoch: int
    Time: datetime
    Entered: int
    Left: int
    Share: float | None


class RetrospectiveBody(BaseModel):
    """The share of a group by the labels of now, each showing counted once."""

    Limit: str
    Group: str
    Share: float | None


class ExposureBody(BaseModel):
    """Exposure from From to To. Figures of items are of full hours: from ItemsFrom to ItemsTo.
    Providers: the most shown of ProviderCount, by the column ProviderColumn."""

    From: datetime
    To: datetime
    Step: int
    Series: list[SeriesBody]
    ItemsFrom: datetime
    ItemsTo: datetime
    Showings: int
    Items: int
    Gini: float | None
    ProviderColumn: str | None
    ProviderCount: int
    Providers: list[ProviderBody]
    Churn: list[ChurnBody]
    Retrospective: list[RetrospectiveBody]


@router.get("/v1/exposure", dependencies=[Reading], summary="What was shown over time")
def get_exposure(
    service: Serving, begin: From = None, to: To = None, step: Step = None
) -> ExposureBody:
    """Shares and prices of limits step by step; exposure of items, providers and labels.

    Lists are in it about a second after they were served.
    """
    with service.database.reading() as connection:
        now = read_state(service.database, connection).now
        period = Period.asked(
            now,
            None if begin is None else seconds(begin),
            None if to is None else seconds(to),
            step,
        )
        found = exposure(
            connection, period, snapshot=service.engine.snapshot, provider=service.settings.provider
        )
    return _exposure_body(found)


def _exposure_body(found: ExposureReport) -> ExposureBody:
    first, last = found.period.hours
    total = found.total
    return ExposureBody(
        From=moment(found.period.begin),
        To=moment(found.period.end),
        Step=found.period.step,
        Series=[_series(one) for one in found.series],
        ItemsFrom=moment(first * HOUR),
        ItemsTo=moment(last * HOUR),
        Showings=total,
        Items=len(found.shown),
        Gini=found.gini,
        ProviderColumn=found.column,
        ProviderCount=len(found.providers),
        Providers=[
            ProviderBody(Provider=name, Shown=n, Share=n / total if total else None)
            for name, n in list(found.providers.items())[:MOST_PROVIDERS]
        ],
        Churn=[
            ChurnBody(
                Epoch=one.epoch,
                Time=moment(one.time),
                Entered=one.entered,
                Left=one.left,
                Share=one.share,
            )
            for one in found.churn
        ],
        Retrospective=[
            RetrospectiveBody(Limit=str(one.limit), Group=one.group, Share=found.popular_now)
            for one in found.on_popular
        ],
    )


def _series(one: LimitSeries) -> SeriesBody:
    return SeriesBody(
        Limit=str(one.limit),
        Id=one.limit_id,
        Group=one.group,
        Asked=one.limit.share,
        IsFloor=one.limit.is_floor,
        Points=[
            PointBody(
                Time=moment(point.time),
                Shown=showings(point.shown),
                Spent=showings(point.spent),
                Share=point.share,
                Price=point.price,
            )
            for point in one.points
        ],
    )
