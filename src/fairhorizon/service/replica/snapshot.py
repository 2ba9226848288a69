"""Everything that lists are made of in one generation: the model, the items, the limits."""

import gc
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy.engine import Connection

from fairhorizon.data.items import ItemTable
from fairhorizon.errors import ConfigError, FairHorizonError, ModelError
from fairhorizon.fcpo.retention.replay import FittedRetention
from fairhorizon.limits.groups import POPULAR_SHARE, popular_group
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit, resolve_limits
from fairhorizon.model.cold_start import Catalogue
from fairhorizon.model.model import Model, open_model
from fairhorizon.model.serving import RepeatRule, Requests, ServingState, UserHistory
from fairhorizon.service.budget.rules import Rules, ServedLimit, Window
from fairhorizon.service.settings import Counts
from fairhorizon.service.store.catalogue import (
    Forgotten,
    Item,
    forgotten_users,
    items_changed_since,
)
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.state import (
    ServiceState,
    limits_in_force,
    model_row,
    popular_in_epoch,
    read_state,
)

MOST_LOADED = 2  # models: the present one, and the one that comes next or was before

_loaded: dict[str, Model] = {}
_loading = threading.Lock()
Flags = NDArray[np.bool_]
ELSEWHERE = "give the items a label of this name: PATCH /api/item/{item-id}"


def loaded(folder: str) -> Model:
    """The model of a folder; a FairHorizonError says why it cannot be served."""
    with _loading:
        if folder not in _loaded:
            model = open_model(Path(folder))
            check_values(model.state)
            # The oldest goes; a model on its way out still serves until the switch.
            for name in list(_loaded)[: len(_loaded) - MOST_LOADED + 1]:
                del _loaded[name]
            _loaded[folder] = model
            gc.collect()
            # A model stays: collections during requests need not look through it.
            gc.freeze()
        return _loaded[folder]


def check_values(state: ServingState) -> None:
    """Refuse a model whose items have no values, by asking for those of one user."""
    person = state.users.find(state.users.ids[0])
    if person is None:
        raise ModelError("the log of the model has no users (fit it again)")
    scenario = Requests([person], None, RepeatRule()).scenario(
        state.users, state.n_items, state.queue_length
    )
    try:
        with torch.inference_mode():
            state.unlimited.item_values(scenario, length=1)
    except ConfigError as error:
        raise ModelError(str(error)) from None


@dataclass(frozen=True, eq=False)
class ServingSnapshot:
    """What a replica knows; a new generation is a new snapshot."""

    generation: int
    epoch: int
    model_id: int | None
    state: ServingState | None  # the model over all items; None: lists of /v1/rank only
    catalogue: "ServedItems"
    rules: Rules
    forgotten: Forgotten
    troubles: tuple[str, ...] = ()  # limits that are about nothing
    retention: FittedRetention | None = None  # what the model has learned from answers

    def user_now(
        self, user: str, events: Sequence[Any], negative: Sequence[str]
    ) -> tuple[UserHistory, list[int]]:
        """Somebody as the model and later events know them, and the items that they refused.

        events: rows of feedback, oldest first.  negative: types of feedback that refuse an item.
        """
        assert self.state is not None
        people = self.state.users
        known = None if user in self.forgotten else people.find(user)
        history: list[int] = [] if known is None else known.items.tolist()
        there, refused = set(history), []
        for row in events:
            code = self.catalogue.codes.get(row.item_id)
            if code is None:
                continue
            if row.type in negative:
                refused.append(code)
            elif code not in there:
                there.add(code)
                history.append(code)
        if known is None:
            return UserHistory.from_items(user, history), refused
        return UserHistory(user, known.code, np.array(history, dtype=np.int64)), refused


@dataclass(frozen=True, eq=False)
class ServedItems:
    """The items by code, those of the model first."""

    ids: list[str]
    rows: dict[str, Item]
    hidden: Flags  # (n_items,) taken out, deleted, or unknown to the service
    _by_category: dict[str, Flags] = field(default_factory=dict)

    @cached_property
    def codes(self) -> dict[str, int]:
        return {one: code for code, one in enumerate(self.ids)}

    @cached_property
    def column_values(self) -> dict[str, Counter[str]]:
        """How many items have each value of each column that limits can be about."""
        found: dict[str, Counter[str]] = {}
        for item in self.rows.values():
            for column, cell in item.columns().items():
                values = {part.strip() for part in cell.split("|")} - {""}
                found.setdefault(column, Counter()).update(values)
        return found

    def in_category(self, category: str) -> Flags:
        """(n_items,) the items of a category."""
        if category not in self._by_category:
            found = [one in self.rows and category in self.rows[one].categories for one in self.ids]
            members = np.array(found, dtype=np.bool_)
            # Anybody can ask for any word: only categories that exist are kept.
            if not members.any():
                return members
            self._by_category[category] = members
        return self._by_category[category]


class SnapshotLoader:
    """Loads snapshots; of the items only what has changed since the last one."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._last: ServingSnapshot | None = None
        self._limits: list[int] = []  # those of the last snapshot
        self._forget()

    def _forget(self) -> None:
        self._rows: dict[str, Item] = {}
        self._deleted: set[str] = set()
        self._known = -1  # the generation of these rows

    def load(self, connection: Connection) -> ServingSnapshot:
        """The snapshot of the generation that this transaction sees."""
        now = read_state(self.database, connection)
        # Generations only rise: this is another database, such as a restored one.
        if now.generation < self._known:
            self._forget()
            self._last = None
        described = self._take_changes(connection, now.generation)
        limits = limits_in_force(connection)
        numbers, last = [row.id for row in limits], self._last
        same = last is not None and (last.model_id, last.epoch) == (now.model_id, now.epoch)
        if last is not None and same and not described and numbers == self._limits:
            # Items that are hidden or come back are frequent, and change nothing else.
            items = replace(
                last.catalogue, rows=dict(self._rows), hidden=self._hidden(last.catalogue)
            )
            people = forgotten_users(connection)
            snapshot = replace(last, generation=now.generation, catalogue=items, forgotten=people)
        else:
            snapshot = self._whole(connection, now, limits)
        self._last, self._limits = snapshot, numbers
        return snapshot

    def _take_changes(self, connection: Connection, generation: int) -> bool:
        """Whether items are new or are described in another way."""
        described = False
        for item, there in items_changed_since(connection, self._known):
            before = self._rows.get(item.id)
            described |= before is None or before.columns() != item.columns()
            self._rows[item.id] = item
            (self._deleted.discard if there else self._deleted.add)(item.id)
        self._known = generation
        return described

    def _hidden(self, catalogue: "ServedItems") -> Flags:
        return np.array(
            [
                self._rows[one].hidden or one in self._deleted if one in self._rows else True
                for one in catalogue.ids
            ],
            dtype=np.bool_,
        )

    def _whole(
        self, connection: Connection, now: ServiceState, limits: Sequence[Any]
    ) -> ServingSnapshot:
        model = None
        if now.model_id is not None:
            model = loaded(model_row(connection, now.model_id).folder)
        state = None if model is None else self._opened(model.state)
        catalogue = ServedItems(self._ids(state), dict(self._rows), np.empty(0, dtype=np.bool_))
        catalogue = replace(catalogue, hidden=self._hidden(catalogue))
        popular = popular_in_epoch(connection, now.epoch)
        binder = _Binder(state, catalogue, popular)
        served = [binder.served(row) for row in limits]
        return ServingSnapshot(
            now.generation,
            now.epoch,
            now.model_id,
            state,
            catalogue,
            Rules(tuple(served)),
            forgotten_users(connection),
            tuple(binder.troubles),
            None if model is None else model.retention,
        )

    def _opened(self, state: ServingState) -> ServingState:
        """The model over the items of the service too, without any limits of its own."""
        here = Catalogue.from_log(
            state.catalogue.log, table_of(self._rows), area_km=state.catalogue.area_km
        )
        return ServingState.from_recommender(state.recommender, state.users, here, ())

    def _ids(self, state: ServingState | None) -> list[str]:
        if state is None:
            return sorted(self._rows)
        return [str(one) for one in state.catalogue.ids[: state.n_items].tolist()]


@dataclass(frozen=True, eq=False)
class _Binder:
    """Finds out who limits are about."""

    state: ServingState | None
    catalogue: ServedItems
    popular: set[str]
    troubles: list[str] = field(default_factory=list)

    def served(self, row: Any) -> ServedLimit:
        limit = Limit.parse(row.text)
        try:
            groups = self.bound(limit)
        except FairHorizonError as error:
            # What it was about has gone since it was created: it is about no items, and alerts say
            # so.
            self.troubles.append(str(error))
            nothing = np.zeros(len(self.catalogue.ids), dtype=np.bool_)
            groups = [] if limit.group.each else [ResolvedLimit(limit, nothing)]
        return ServedLimit(
            row.id, limit, Window.parse(row.window), Counts(row.counts), row.slack, tuple(groups)
        )

    def bound(self, limit: Limit) -> list[ResolvedLimit]:
        found = resolve_limits([limit], self._counts, self._attribute, elsewhere=ELSEWHERE)
        if not any(one.is_dynamic for one in found):
            return found
        # Popular are those of the epoch, in all replicas alike, and not by the counts of this
        # moment.
        members = np.array([one in self.popular for one in self.catalogue.ids], dtype=np.bool_)
        return [ResolvedLimit(one.limit, members) for one in found]

    def _counts(self) -> NDArray[np.int64]:
        if self.state is None:
            return np.zeros(len(self.catalogue.ids), dtype=np.int64)
        return self.state.catalogue.counts()[: self.state.n_items]

    def _attribute(self, column: str) -> NDArray[Any]:
        if self.state is not None:
            return self.state.catalogue.attribute(column)[: self.state.n_items]
        return table_of(self.catalogue.rows).attribute(column, self.catalogue.ids, complete=False)


def check_bound(snapshot: ServingSnapshot, limit: Limit) -> None:
    """Refuse a limit on a group that the items do not have."""
    _Binder(snapshot.state, snapshot.catalogue, set()).bound(limit)


def table_of(items: Mapping[str, Item]) -> ItemTable:
    """The attributes of items as columns."""
    rows = {name: items[name].columns() for name in sorted(items)}
    names = dict.fromkeys(column for cells in rows.values() for column in cells)
    columns = {
        name: np.array([cells.get(name, "") for cells in rows.values()], dtype=object)
        for name in names
    }
    return ItemTable(np.array(list(rows), dtype=object), columns)


def popular_now(snapshot: ServingSnapshot, showings: dict[str, int]) -> list[str]:
    """Who is popular by the training log and everything shown since."""
    counts, share = np.zeros(len(snapshot.catalogue.ids), dtype=np.int64), POPULAR_SHARE
    if snapshot.state is not None:
        share = snapshot.state.recommender.popular_share
        counts += snapshot.state.catalogue.counts()[: len(counts)]
    counts += np.array([showings.get(one, 0) for one in snapshot.catalogue.ids], dtype=np.int64)
    group = popular_group(counts, share)
    return [
        one for one, inside in zip(snapshot.catalogue.ids, group.tolist(), strict=True) if inside
    ]
