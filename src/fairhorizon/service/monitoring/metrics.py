"""What Prometheus reads: requests and times of all workers, budgets as the database has them."""

import os

import prometheus_client as prometheus
from prometheus_client import CollectorRegistry, multiprocess
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy.engine import Connection

from fairhorizon.service.budget.rules import showings
from fairhorizon.service.monitoring.limits import present_accounts
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.state import read_state

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # where workers of one server leave their counts
CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """Counts of one worker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = prometheus.Counter(
            "fairhorizon_requests",
            "Requests by route and status",
            ["route", "status"],
            registry=self.registry,
        )
        self.seconds = prometheus.Histogram(
            "fairhorizon_request_seconds",
            "Time from a request to its answer",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.events = prometheus.Counter(
            "fairhorizon_feedback_events", "Events that were new", registry=self.registry
        )

    def observe(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self, database: Database, connection: Connection) -> bytes:
        """All of it in the format of Prometheus."""
        registry = self.registry
        if os.environ.get(FOLDER):
            registry = CollectorRegistry()
            # Several workers: the sums over the files that each of them writes.
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry) + generate_latest(_stored(database, connection))


def _stored(database: Database, connection: Connection) -> CollectorRegistry:
    registry = CollectorRegistry()

    def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> prometheus.Gauge:
        return prometheus.Gauge(f"fairhorizon_{name}", text, labels, registry=registry)

    now = read_state(database, connection)
    gauge("lists", "Lists recorded").set(now.lists)
    gauge("showings", "Showings recorded").set(now.showings)
    gauge("label_epoch", "Epoch of the labels by popularity").set(now.epoch)
    names = ("limit", "group", "window")
    asked = gauge("limit_asked_share", "Share that a limit asks for", names)
    reached = gauge("limit_reached_share", "Share of the showings in the window", names)
    charged = gauge("limit_charged_showings", "Showings charged, leases included", names)
    price = gauge("limit_price", "What a limit subtracts from a value", names)
    for one in present_accounts(connection):
        labels = (one.text, one.group, one.window)
        asked.labels(*labels).set(one.share)
        reached.labels(*labels).set(one.reached if one.reached is not None else float("nan"))
        charged.labels(*labels).set(showings(one.charged))
        price.labels(*labels).set(one.price)
    return registry
