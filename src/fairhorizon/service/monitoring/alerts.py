"""Alerts begin and end, are logged, and are sent to whoever wants them."""

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from sqlalchemy.engine import Connection

from fairhorizon.service.monitoring.findings import Finding, findings
from fairhorizon.service.monitoring.webhook import Webhook
from fairhorizon.service.replica.engine import Engine
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import alerts
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.state import ServiceState

EVERY = 5.0  # seconds
LOG = logging.getLogger("fairhorizon.service")


class AlertState(StrEnum):
    """What has happened to an alert."""

    BEGUN = "begun"
    ENDED = "ended"


@dataclass(frozen=True)
class AlertChange:
    """An alert that has begun or ended."""

    kind: str
    subject: str
    message: str
    state: AlertState
    time: float
    number: int | None = None  # of the row, where it has one

    def body(self) -> dict[str, str]:
        """As it is sent."""
        return {
            "Kind": self.kind,
            "Subject": self.subject,
            "Message": self.message,
            "State": self.state.value,
            "Time": datetime.fromtimestamp(self.time, UTC).isoformat(),
        }


class Watch:
    """Looks for what is wrong every few seconds; called by the maintenance of each replica."""

    def __init__(self, engine: Engine, every: float = EVERY) -> None:
        self.engine, self.every = engine, every
        self.webhook = Webhook(engine.settings.webhook)
        self._next = 0.0

    def __call__(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.every
        changes = look(self.engine.database, self.engine.settings, self.engine.snapshot)
        for change in changes:
            level = logging.WARNING if change.state is AlertState.BEGUN else logging.INFO
            text = "alert %s %s: %s: %s"
            LOG.log(level, text, change.kind, change.state, change.subject, change.message)
            self.webhook.send(change.body())

    def stop(self) -> None:
        self.webhook.stop()


def look(
    database: Database, settings: ServiceSettings, snapshot: ServingSnapshot | None
) -> list[AlertChange]:
    """Begin and end alerts; those that this call has changed.

    Replicas look at the same time. What has to change is found out again under the lock of the
    state, so that one of them changes it, and with what is true at that moment.
    """
    with database.reading() as connection:
        state = service_state.read(database, connection)
        if not _changes(connection, settings, state, snapshot):
            return []
    with database.writing() as connection:
        state = service_state.lock(database, connection)
        changes = _changes(connection, settings, state, snapshot)
        for one in changes:
            if one.number is None:
                alerts.begin(connection, one.kind, one.subject, one.message, one.time)
            else:
                alerts.end(connection, one.number, one.time)
    return changes


def _changes(
    connection: Connection,
    settings: ServiceSettings,
    state: ServiceState,
    snapshot: ServingSnapshot | None,
) -> list[AlertChange]:
    found, judged = findings(connection, settings, state, snapshot)
    now = {(one.kind.value, one.subject): one for one in found}
    there = {(row.kind, row.subject): row for row in alerts.active(connection)}
    begun = [_begun(one, state.now) for key, one in now.items() if one.begins and key not in there]
    kinds = {kind.value for kind in judged}
    ended = [
        AlertChange(
            row.kind,
            row.subject,
            f"over after {(state.now - row.begun_at) / 60:,.0f} minutes; it was: {row.message}",
            AlertState.ENDED,
            state.now,
            row.id,
        )
        for key, row in there.items()
        if key not in now and row.kind in kinds
    ]
    return begun + ended


def _begun(one: Finding, now: float) -> AlertChange:
    return AlertChange(one.kind.value, one.subject, one.message, AlertState.BEGUN, now)
