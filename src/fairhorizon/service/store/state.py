"""The one row that gives lists their order and says what they are made of."""

import secrets
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store.database import POSTGRESQL, SQLITE, Database
from fairhorizon.service.store.schema import state

ROW = 1
STATE = sa.select(state)
LOCKED = {
    SQLITE: STATE,
    POSTGRESQL: STATE.with_for_update(),
}  # SQLite locks all when a write begins


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


def begin(database: Database) -> None:
    """Make the row, once."""
    with database.writing() as connection:
        insert = database.insert(state).on_conflict_do_nothing()
        first = dict.fromkeys(("generation", "epoch", "lists", "showings", "rolled_up"), 0)
        row = {"id": ROW, **first, "clock": 0.0, "secret": secrets.token_hex(32)}
        connection.execute(insert.values(row))


def read(database: Database, connection: Connection) -> ServiceState:
    """The row as it is."""
    return _state_of(connection.execute(STATE).one(), database.now(connection))


def lock(database: Database, connection: Connection) -> ServiceState:
    """The row, which nobody else can lock or change before this transaction ends."""
    row = connection.execute(LOCKED[database.dialect]).one()
    return _state_of(row, database.now(connection))


def _state_of(row: sa.Row[tuple[object, ...]], now: float) -> ServiceState:
    fields = row._asdict()
    return ServiceState(
        **{name: fields[name] for name in ServiceState.__annotations__ if name != "now"},
        now=max(now, fields["clock"]),  # a clock that is set back must not reopen a window
    )


def change(connection: Connection, **columns: object) -> None:
    """Write some columns."""
    connection.execute(state.update().values(columns))


def next_generation(database: Database, connection: Connection, **columns: object) -> int:
    """Say that what lists are made of changes with this transaction.

    Lists that were decided before it are not recorded after it: replicas load what has changed and
    decide them anew.
    """
    generation = lock(database, connection).generation + 1
    change(connection, generation=generation, **columns)
    return generation
