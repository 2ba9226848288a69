"""Exposure over a period: limits step by step, providers, evenness, and changes of labels."""

from dataclasses import dataclass

from sqlalchemy.engine import Connection

from fairhorizon.limits.language import POPULAR, GroupOf
from fairhorizon.service.monitoring.item_figures import (
    EpochChange,
    churn,
    gini_of,
    known_items,
    popular_now_share,
    provider_column,
    shown_items,
    shown_providers,
)
from fairhorizon.service.monitoring.limit_series import LimitSeries, limit_series
from fairhorizon.service.monitoring.periods import Period
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.store import labels


@dataclass(frozen=True, eq=False)
class ExposureReport:
    """What was shown in a period; items are counted in the full hours that it touches."""

    period: Period
    series: list[LimitSeries]
    shown: dict[str, int]  # by item
    column: str | None  # that names providers
    providers: dict[str, int]  # showings of each
    gini: float | None
    churn: list[EpochChange]
    popular_now: float | None  # share of the items that are popular now

    @property
    def total(self) -> int:
        return sum(self.shown.values())

    @property
    def on_popular(self) -> list[LimitSeries]:
        """The limits whose group moves: the labels of now are not those that they count."""
        return [one for one in self.series if one.limit.group == GroupOf(POPULAR)]


def exposure(
    connection: Connection,
    period: Period,
    *,
    snapshot: ServingSnapshot | None,
    provider: str | None,
) -> ExposureReport:
    """Everything about a period.

    snapshot: as a replica has it, None: items are read from the database.
    provider: the column that names who provides items; None: a usual one, if items have it.
    """
    known, shown = known_items(snapshot, connection), shown_items(connection, period.hours)
    column = provider_column(provider, known.rows)
    popular = labels.of_epoch(connection, labels.last(connection)[0])
    return ExposureReport(
        period,
        limit_series(connection, period),
        shown,
        column,
        {} if column is None else shown_providers(shown, known, column),
        gini_of(shown, known),
        churn(connection, period),
        popular_now_share(shown, popular),
    )
