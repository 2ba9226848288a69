"""API keys: made once, shown once, kept as a hash."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.settings import Role
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import keys

PREFIX = "fh"
NOBODY = "0" * 64  # the hash of no key


@dataclass(frozen=True)
class Key:
    """Who calls, and what they may do."""

    id: str
    name: str
    role: Role


def make(database: Database, connection: Connection, name: str, role: Role) -> str:
    """A new key; what is returned cannot be found out again."""
    # The number is public and finds the row; only the hash of the secret is kept. A plain hash is
    # enough, as the secret is random and long.
    number, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    row = {"id": number, "name": name, "role": role.value, "secret_hash": _hash(secret)}
    connection.execute(keys.insert().values(**row, created_at=database.now(connection)))
    return f"{PREFIX}_{number}_{secret}"


def find(connection: Connection, text: str) -> Key | None:
    """The key that this text is, if it is one and has not ended.

    The secret is compared in constant time, also where there is no such key.
    """
    prefix, _, rest = text.partition("_")
    number, _, secret = rest.partition("_")
    row = connection.execute(
        sa.select(keys).where(keys.c.id == number, keys.c.ended_at.is_(None))
    ).first()
    same = hmac.compare_digest(_hash(secret), NOBODY if row is None else row.secret_hash)
    if row is None or not same or prefix != PREFIX:
        return None
    return Key(row.id, row.name, Role(row.role))


def by_id(connection: Connection, number: str) -> Key | None:
    """A key that has not ended, by its public part."""
    query = sa.select(keys).where(keys.c.id == number, keys.c.ended_at.is_(None))
    row = connection.execute(query).first()
    return None if row is None else Key(row.id, row.name, Role(row.role))


def end(database: Database, connection: Connection, number: str) -> bool:
    """Let a key end; whether there was one."""
    update = keys.update().where(keys.c.id == number, keys.c.ended_at.is_(None))
    return bool(connection.execute(update.values(ended_at=database.now(connection))).rowcount)


def every(connection: Connection) -> list[sa.Row[tuple[object, ...]]]:
    return list(connection.execute(sa.select(keys).order_by(keys.c.created_at)))


def any_in_use(connection: Connection) -> bool:
    query = sa.select(keys.c.id).where(keys.c.ended_at.is_(None)).limit(1)
    return connection.execute(query).first() is not None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
