"""Lists that were served, place by place: what an item was worth, what limits took, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import Limit
from fairhorizon.model.explain import Parts, reasons
from fairhorizon.model.requests import RepeatRule, Requests
from fairhorizon.service.budget.rules import place_units, showings
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import feedback, items
from fairhorizon.service.store.schema import accounts, limits, windows
from fairhorizon.service.vocabulary import Source


@dataclass(frozen=True)
class InGroup:
    """A group that a showing counted in."""

    name: str
    limit: Limit
    group_limit: str  # the limit of this group alone, as prices are recorded

    def change(self, prices: dict[str, float], length: int, place: int) -> float:
        """What the limit adds to the value of a showing: it takes its price, a floor gives it."""
        price = prices.get(self.group_limit, 0.0)
        counted = showings(place_units(self.limit, length)[place])
        return price * counted * (1 if self.limit.is_floor else -1)


@dataclass(frozen=True)
class ExplainedPlace:
    """One showing."""

    place: int
    item: str
    title: str
    score: float
    value: float
    groups: tuple[str, ...]
    change: float  # by the prices of limits
    propensity: float | None
    because: tuple[tuple[str, float], ...]  # titles of items of the history, with their parts


@dataclass(frozen=True)
class ExplainedList:
    """A list as it was recorded."""

    row: Any
    places: tuple[ExplainedPlace, ...]

    @property
    def is_ranked(self) -> bool:
        """Whether its scores are those of the caller."""
        return bool(self.row.source == Source.RANK)


def explained_lists(
    connection: Connection,
    snapshot: ServingSnapshot | None,
    settings: ServiceSettings,
    user: str,
    rows: Sequence[Any],
) -> list[ExplainedList]:
    """The reasons are those of the present model and history, which may have changed since."""
    groups = _groups(connection, rows)
    wanted = {one for row in rows if row.source == Source.RECOMMEND for one in row.items}
    because = _reasons(connection, snapshot, settings, user, sorted(wanted))
    causes = {name for parts in because.values() for name, _ in parts}
    shown = {one for row in rows for one in row.items}
    titles = items.titles(connection, sorted(shown | causes))

    def place(row: Any, k: int) -> ExplainedPlace:
        item = row.items[k]
        inside = [groups[number] for number in row.labels[k] if number in groups]
        parts = because.get(item, []) if row.source == Source.RECOMMEND else []
        return ExplainedPlace(
            k + 1,
            item,
            titles[item],
            row.scores[k],
            row.values[k],
            tuple(one.name for one in inside),
            sum(one.change(row.prices, len(row.items), k) for one in inside),
            None if row.propensities is None else row.propensities[k],
            tuple((titles[name], share) for name, share in parts),
        )

    return [ExplainedList(row, tuple(place(row, k) for k in range(len(row.items)))) for row in rows]


def _groups(connection: Connection, rows: Sequence[Any]) -> dict[int, InGroup]:
    """The accounts that some lists count in."""
    ids = {number for row in rows for inside in row.labels for number in inside}
    query = (
        sa.select(accounts.c.id, accounts.c.group, limits.c.text)
        .join(windows, windows.c.id == accounts.c.window_id)
        .join(limits, limits.c.id == windows.c.limit_id)
        .where(accounts.c.id.in_(ids))
    )
    found = {}
    for row in connection.execute(query):
        limit = Limit.parse(row.text)
        asked = str(limit).removeprefix(str(limit.group))
        found[row.id] = InGroup(row.group, limit, f"{row.group}{asked}")
    return found


def _reasons(
    connection: Connection,
    snapshot: ServingSnapshot | None,
    settings: ServiceSettings,
    user: str,
    names: Sequence[str],
) -> dict[str, Parts]:
    """For each item, the items of the history that add most to its score now."""
    if snapshot is None or snapshot.state is None:
        return {}
    codes = {one: snapshot.catalogue.codes[one] for one in names if one in snapshot.catalogue.codes}
    if not codes:
        return {}
    state = snapshot.state
    events = feedback.of_users(connection, [user], settings.read).get(user, [])
    person = snapshot.requester(user, events, settings.negative).person
    scenario = Requests([person], None, RepeatRule()).scenario(
        state.people, state.n_items, state.free.queue_length
    )
    because, _ = reasons(state, scenario, np.array(list(codes.values()), dtype=np.int64))
    return {
        one: [(str(name), share) for name, share in parts]
        for one, parts in zip(codes, because, strict=True)
    }
