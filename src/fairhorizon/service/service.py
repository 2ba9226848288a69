"""The parts of one serving process, put together."""

from dataclasses import dataclass, field

from fairhorizon.service.keeping import Keeper
from fairhorizon.service.monitoring.alerts import Watch
from fairhorizon.service.monitoring.metrics import Metrics
from fairhorizon.service.replica.engine import Engine
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database


@dataclass
class Service:
    """One worker: its database, its engine that makes lists, and what keeps things in order.

    open_to: hosts that may be called without keys; empty: keys are needed.
    """

    database: Database
    settings: ServiceSettings
    open_to: tuple[str, ...] = ("127.0.0.1", "localhost", "::1")
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.engine = Engine(self.database, self.settings)
        self.watch = Watch(self.engine)
        self.keeper = Keeper(self.engine, also=(self.watch,))

    def start(self) -> None:
        self.engine.start()
        self.keeper.start()

    def stop(self) -> None:
        self.keeper.stop()
        self.watch.stop()
        self.engine.stop()
        self.database.close()
