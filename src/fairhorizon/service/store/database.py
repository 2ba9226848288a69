"""The database: SQLite or PostgreSQL behind one interface, transactions, and its clock."""

import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from fairhorizon.errors import ConfigError, FairHorizonError

WAIT_FOR_LOCK = 20.0  # seconds, before a write to SQLite gives up
CONNECTIONS = 8
LARGEST_LOG = 16 * 2**20  # bytes of SQLite's write-ahead log, after which it is emptied
WAIT_FOR_READERS = 0.5  # seconds, for which nobody can write
BLOCK = 10_000  # rows in memory at a time, of a table that is read or written as a whole
SQLITE, POSTGRESQL = "sqlite", "postgresql"
SQLITE_AWAY = tuple(
    f"SQLITE_{name}"
    for name in ("BUSY", "LOCKED", "IOERR", "CANTOPEN", "FULL", "READONLY", "PROTOCOL", "NOTADB")
)
ADDRESS = re.compile(r"(sqlite|postgres)[\w+]*:")  # with a mistake in it, no path
NOW = {  # seconds since 1970
    SQLITE: sa.text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
    POSTGRESQL: sa.text("SELECT extract(epoch FROM clock_timestamp())::double precision"),
}

# Tests end the process at these points as a power cut would, to see that nothing is lost.
CRASH_AT = "FAIRHORIZON_CRASH_AT"
AFTER_CHARGE, BEFORE_COMMIT, AFTER_COMMIT = "after-charge", "before-commit", "after-commit"
IN_EPOCH_SWITCH, FEEDBACK_AFTER_COMMIT = "in-epoch-switch", "feedback-after-commit"

INSERTS: dict[str, Any] = {SQLITE: sqlite.insert, POSTGRESQL: postgresql.insert}


class DatabaseAwayError(FairHorizonError):
    """The database does not answer; what must be recorded has to wait."""


class Database:
    """Where the service keeps everything.

    url: postgresql://..., sqlite:///FILE, or the path of a SQLite file.
    """

    def __init__(self, url: str) -> None:
        self.url = complete_url(url)
        self.dialect = self.url.get_backend_name()
        self._engine: Engine | None = None
        # One writer at a time: threads of a process need not find out by asking SQLite again.
        self._writing = threading.RLock()

    @property
    def engine(self) -> Engine:
        """Made when it is first used, so that a process that forks before has none to share."""
        if self._engine is None:
            with self._writing:
                self._engine = self._engine or _engine(self.url)
        return self._engine

    def __str__(self) -> str:  # without the password
        return self.url.render_as_string(hide_password=True)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads: one state of the database, however long it takes."""
        with _away(), self.engine.connect() as connection:
            # SQLite's readers see one state anyway, by its write-ahead log.
            if self.dialect == POSTGRESQL:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed at the end, or not at all."""
        with _away():
            if self.dialect == SQLITE:
                with self._writing, self.engine.connect() as connection:
                    # Read by `_begin_sqlite`, which begins the transaction of this connection.
                    connection.info["writes"] = True
                    try:
                        with connection.begin():
                            yield connection
                    finally:
                        connection.info.pop("writes", None)
            else:
                with self.engine.begin() as connection:
                    yield connection

    def now(self, connection: Connection) -> float:
        """The time by the database's clock."""
        return float(connection.execute(NOW[self.dialect]).scalar_one())

    def insert(self, table: sa.Table) -> Any:
        """An insert that can say what to do about rows that are there: `on_conflict_...`."""
        return INSERTS[self.dialect](table)

    def empty_log(self, larger_than: int = LARGEST_LOG) -> bool:
        """Copy SQLite's write-ahead log into its file and cut it to nothing, if it has grown.

        SQLite copies the log by itself, but begins it anew only when nobody reads from it. Under
        steady traffic somebody always does, and it grows for ever. Here whoever begins to read
        waits for nobody, and writers wait until those who read now are done.

        larger_than: bytes.  Returns False if somebody read for too long: try again later.
        """
        file = Path(f"{self.url.database}-wal")
        if self.dialect != SQLITE or not file.exists() or file.stat().st_size <= larger_than:
            return True
        with _away(), self._writing, self.engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            try:
                # Nobody can write while it waits for readers, so it waits less than writers do.
                raw.execute(f"PRAGMA busy_timeout = {int(1000 * WAIT_FOR_READERS)}")
                busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                raw.execute(f"PRAGMA busy_timeout = {int(1000 * WAIT_FOR_LOCK)}")
        return not busy

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


def in_blocks(
    connection: Connection, query: sa.Select[Any], size: int = BLOCK
) -> Iterator[Sequence[Any]]:
    """The rows of a query, so many at a time; the rest stays in the database."""
    rows = connection.execute(query, execution_options={"yield_per": size})
    yield from rows.partitions()


def complete_url(url: str) -> sa.URL:
    """With its driver; a path is one of SQLite."""
    if "://" not in url and not ADDRESS.match(url):
        return sa.URL.create(SQLITE, database=str(Path(url).expanduser().resolve()))
    try:
        parsed = sa.make_url(url)
        name = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        name = ""
    if name not in (SQLITE, POSTGRESQL):
        # The rest of the address may hold a password.
        hidden = url.partition(":")[0]
        raise ConfigError(
            f"{hidden}://...: not the address of a database (give postgresql://USER@HOST/NAME, "
            "sqlite:///FILE or the path of a SQLite file)"
        )
    if name == POSTGRESQL:
        return parsed.set(drivername="postgresql+psycopg")
    if not parsed.database:
        raise ConfigError(f"{url}: a SQLite database needs a file (give sqlite:///FILE)")
    return parsed


def _engine(url: sa.URL) -> Engine:
    if url.get_backend_name() == SQLITE:
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(
            url, connect_args={"timeout": WAIT_FOR_LOCK, "check_same_thread": False}
        )
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    return sa.create_engine(
        url, pool_pre_ping=True, pool_size=CONNECTIONS, connect_args={"connect_timeout": 5}
    )


def _prepare_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    """WAL: readers do not wait for the writer.  FULL: what was committed survives a power cut."""
    # The driver begins no transactions by itself: they begin where we say.
    connection.isolation_level = None
    until = time.monotonic() + WAIT_FOR_LOCK
    limit = f"journal_size_limit={LARGEST_LOG}"
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", limit):
        while True:
            try:
                connection.execute(f"PRAGMA {pragma}")
                break
            except sqlite3.OperationalError:
                # While others set up the same new file, SQLite refuses at once and does not wait.
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    # A write that begins as a read fails if another came in between, however long it waits.
    immediate = " IMMEDIATE" if connection.info.get("writes") else ""
    connection.exec_driver_sql(f"BEGIN{immediate}")


def _is_away(error: DBAPIError) -> bool:
    """Whether it may be better the next time; not if a statement is wrong."""
    named = getattr(error.orig, "sqlite_errorname", None)
    if named is not None:
        return str(named).startswith(SQLITE_AWAY)
    kinds = (sa.exc.OperationalError, sa.exc.InterfaceError)
    return isinstance(error, kinds) or error.connection_invalidated


@contextmanager
def _away() -> Iterator[None]:
    """One error for all the ways in which a database can be unreachable."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise DatabaseAwayError("the database has no free connection (try again)") from error
    except DBAPIError as error:
        if _is_away(error):
            reason = str(error.orig).strip().splitlines()[:1] or ["no answer"]
            raise DatabaseAwayError(
                f"the database does not answer: {reason[0]} (it is asked again at the next call)"
            ) from error
        raise


def crash_point(name: str) -> None:
    """Do nothing, unless the environment asks for an end right here."""
    if os.environ.get(CRASH_AT) == name:
        os.kill(os.getpid(), signal.SIGKILL)
