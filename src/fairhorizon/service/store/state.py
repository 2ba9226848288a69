"""What lists are made of: the row of the state, the model, limits, and who is popular.

The state is one row, whose lock gives recorded lists their order. Whatever changes what lists are
made of raises its generation, so that no replica records a list that was decided before.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store.database import (
    IN_EPOCH_SWITCH,
    POSTGRESQL,
    SQLITE,
    Database,
    crash_point,
)
from fairhorizon.service.store.schema import item_hours, labels, limits, models, state

ROW = 1
STATE = sa.select(state)
# SQLite locks the whole file when a write begins.
LOCKED = {SQLITE: STATE, POSTGRESQL: STATE.with_for_update()}


@dataclass(frozen=True)
class ServiceState:
    """What the row says, and the time by the database's clock."""

    generation: int  # raised by every change of items, limits, labels or the model
    epoch: int  # of the labels by popularity
    lists: int
    showings: int
    rolled_up: int
    model_id: int | None
    secret: str
    now: float


def begin_state(database: Database) -> None:
    """Make the row, once."""
    with database.writing() as connection:
        insert = database.insert(state).on_conflict_do_nothing()
        first = dict.fromkeys(("generation", "epoch", "lists", "showings", "rolled_up"), 0)
        row = {"id": ROW, **first, "clock": 0.0, "secret": secrets.token_hex(32)}
        connection.execute(insert.values(row))


def read_state(database: Database, connection: Connection) -> ServiceState:
    """The row as it is."""
    return _state_of(connection.execute(STATE).one(), database.now(connection))


def lock_state(database: Database, connection: Connection) -> ServiceState:
    """The row, which nobody else can lock or change before this transaction ends."""
    row = connection.execute(LOCKED[database.dialect]).one()
    return _state_of(row, database.now(connection))


def _state_of(row: sa.Row[tuple[object, ...]], now: float) -> ServiceState:
    fields = row._asdict()
    return ServiceState(
        **{name: fields[name] for name in ServiceState.__annotations__ if name != "now"},
        # A clock that is set back must not reopen a window.
        now=max(now, fields["clock"]),
    )


def change_state(connection: Connection, **columns: object) -> None:
    """Write some columns."""
    connection.execute(state.update().values(columns))


def next_generation(database: Database, connection: Connection, **columns: object) -> int:
    """Say that what lists are made of changes with this transaction.

    Lists that were decided before it are not recorded after it: replicas load what has changed and
    decide them anew.
    """
    # The lock first: whoever records lists holds it too, so that no list is recorded in between.
    generation = lock_state(database, connection).generation + 1
    change_state(connection, generation=generation, **columns)
    return generation


def register_model(database: Database, connection: Connection, folder: str, method: str) -> int:
    """The number of the model in a folder; the same folder is the same model."""
    found = find_model(connection, folder)
    if found is not None:
        return found
    row = {"folder": folder, "method": method, "registered_at": database.now(connection)}
    made = connection.execute(models.insert().values(row).returning(models.c.id))
    return int(made.scalar_one())


def find_model(connection: Connection, folder: str) -> int | None:
    """The number of the model in a folder, if it is registered."""
    found = connection.execute(sa.select(models.c.id).where(models.c.folder == folder)).scalar()
    return None if found is None else int(found)


def promote_model(database: Database, connection: Connection, number: int) -> int:
    """Serve this model from now on, in all replicas; the generation that begins."""
    generation = next_generation(database, connection)
    now = database.now(connection)
    present = connection.execute(sa.select(state.c.model_id)).scalar_one()
    if present != number:
        retired = models.update().where(models.c.id == present)
        connection.execute(retired.values(retired_at=now))
    promoted = models.update().where(models.c.id == number)
    connection.execute(promoted.values(promoted_at=now, retired_at=None))
    change_state(connection, model_id=number)
    return generation


def model_row(connection: Connection, number: int) -> Any:
    return connection.execute(sa.select(models).where(models.c.id == number)).first()


def all_models(connection: Connection) -> list[Any]:
    return list(connection.execute(sa.select(models).order_by(models.c.id)))


def previous_model(connection: Connection) -> Any:
    """The one that was served before the present one; None: there was none."""
    query = sa.select(models).where(models.c.retired_at.is_not(None))
    return connection.execute(query.order_by(models.c.retired_at.desc()).limit(1)).first()


def insert_limit(
    database: Database, connection: Connection, text: str, *, window: str, counts: str, slack: int
) -> int:
    """Count from now on; the number of the limit.

    A limit that is changed is a new one, because it counts anew.
    text: in the language of limits (docs/limits.md).  slack: C, in units.
    """
    next_generation(database, connection)
    row = {"text": text, "window": window, "counts": counts, "slack": slack}
    row |= {"created_at": database.now(connection)}
    made = connection.execute(limits.insert().values(row).returning(limits.c.id))
    return int(made.scalar_one())


def end_limit(database: Database, connection: Connection, number: int) -> bool:
    """Keep it no longer; whether it was in force."""
    update = limits.update().where(limits.c.id == number, limits.c.ended_at.is_(None))
    ended = connection.execute(update.values(ended_at=database.now(connection))).rowcount
    if ended:
        next_generation(database, connection)
    return bool(ended)


def limit_row(connection: Connection, number: int) -> Any:
    return connection.execute(sa.select(limits).where(limits.c.id == number)).first()


def limits_in_force(connection: Connection) -> list[Any]:
    query = sa.select(limits).where(limits.c.ended_at.is_(None)).order_by(limits.c.id)
    return list(connection.execute(query))


def all_limits(connection: Connection) -> list[Any]:
    return list(connection.execute(sa.select(limits).order_by(limits.c.id)))


def begin_epoch(database: Database, connection: Connection, popular: Sequence[str]) -> int:
    """Begin an epoch: lists recorded from now on count under these labels. Its number."""
    now = lock_state(database, connection)
    epoch = now.epoch + 1
    row = {"epoch": epoch, "begun_at": now.now, "popular": sorted(popular)}
    connection.execute(labels.insert().values(row))
    crash_point(IN_EPOCH_SWITCH)
    next_generation(database, connection, epoch=epoch)
    return epoch


def popular_in_epoch(connection: Connection, epoch: int) -> set[str]:
    found = connection.execute(sa.select(labels.c.popular).where(labels.c.epoch == epoch)).scalar()
    return set(found or ())


def last_epoch(connection: Connection) -> tuple[int, float]:
    """The number of the last epoch and when it began; 0 before the first."""
    query = sa.select(labels.c.epoch, labels.c.begun_at).order_by(labels.c.epoch.desc()).limit(1)
    row = connection.execute(query).first()
    return (0, 0.0) if row is None else (row.epoch, row.begun_at)


def all_epochs(connection: Connection, *, since: float = 0.0) -> list[Any]:
    """Epochs in order, with when they began and their popular items."""
    query = sa.select(labels).where(labels.c.begun_at >= since).order_by(labels.c.epoch)
    return list(connection.execute(query))


def showings_by_item(connection: Connection) -> dict[str, int]:
    """How often each item was shown so far."""
    query = sa.select(item_hours.c.item_id, sa.func.sum(item_hours.c.shown).label("shown"))
    rows = connection.execute(query.group_by(item_hours.c.item_id))
    return {row.item_id: int(row.shown) for row in rows}
