"""Exposure over time: GET /v1/exposure."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from fairhorizon.service.api.auth import GuardedRoute, Reading, Serving
from fairhorizon.service.api.bodies import Moment, moment, seconds
from fairhorizon.service.budget.rules import showings
from fairhorizon.service.monitoring.exposure import ExposureReport, exposure
from fairhorizon.service.monitoring.limit_series import LimitSeries
from fairhorizon.service.monitoring.periods import HOUR, LONGEST_STEP, SHORTEST_STEP, Period
from fairhorizon.service.store import state as service_state

MOST_PROVIDERS = 1000

router = APIRouter(route_class=GuardedRoute)

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
        now = service_state.read(service.database, connection).now
        period = Period.asked(
            now,
            None if begin is None else seconds(begin),
            None if to is None else seconds(to),
            step,
        )
        found = exposure(
            connection, period, snapshot=service.engine.snapshot, provider=service.settings.provider
        )
    return _body(found)


def _body(found: ExposureReport) -> ExposureBody:
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
