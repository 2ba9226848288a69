"""The models that were served, and the one that is."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import models, state


def register(database: Database, connection: Connection, folder: str, method: str) -> int:
    """The number of the model in a folder; the same folder is the same model."""
    found = find(connection, folder)
    if found is not None:
        return found
    row = {"folder": folder, "method": method, "registered_at": database.now(connection)}
    made = connection.execute(models.insert().values(row).returning(models.c.id))
    return int(made.scalar_one())


def find(connection: Connection, folder: str) -> int | None:
    """The number of the model in a folder, if it is registered."""
    found = connection.execute(sa.select(models.c.id).where(models.c.folder == folder)).scalar()
    return None if found is None else int(found)


def promote(database: Database, connection: Connection, number: int) -> int:
    """Serve this model from now on, in all replicas; the generation that begins."""
    generation = service_state.next_generation(database, connection)
    now = database.now(connection)
    present = connection.execute(sa.select(state.c.model_id)).scalar_one()
    if present != number:
        retired = models.update().where(models.c.id == present)
        connection.execute(retired.values(retired_at=now))
    promoted = models.update().where(models.c.id == number)
    connection.execute(promoted.values(promoted_at=now, retired_at=None))
    service_state.change(connection, model_id=number)
    return generation


def get(connection: Connection, number: int) -> Any:
    return connection.execute(sa.select(models).where(models.c.id == number)).first()


def every(connection: Connection) -> list[Any]:
    return list(connection.execute(sa.select(models).order_by(models.c.id)))


def before(connection: Connection) -> Any:
    """The one that was served before the present one; None: there was none."""
    query = sa.select(models).where(models.c.retired_at.is_not(None))
    return connection.execute(query.order_by(models.c.retired_at.desc()).limit(1)).first()
