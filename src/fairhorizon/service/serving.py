"""Running the service: checks first, the model loaded once, then workers that share it."""

import gc
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from fairhorizon.errors import ConfigError, FairHorizonError
from fairhorizon.service.admin.bulk_load import FileColumns, read_items
from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.monitoring.alerts import check_address
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import keys
from fairhorizon.service.store.database import SQLITE, Database

LOCAL = ("127.0.0.1", "localhost", "::1")
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
STOP_WITHIN = 15  # seconds, after which a worker that does not stop is ended
LOG = logging.getLogger("fairhorizon.service")


@dataclass(frozen=True)
class Address:
    """Where the service listens."""

    host: str = "127.0.0.1"
    port: int = 8088
    certificate: Path | None = None  # of TLS, with its key
    key: Path | None = None

    @property
    def is_local(self) -> bool:
        return self.host in LOCAL

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.certificate else ''}://{host}:{self.port}"


def serve(
    url: str,
    settings: ServiceSettings,
    *,
    run: Path | None,
    limits: tuple[str, ...],
    items: tuple[Path, FileColumns] | None = None,
    address: Address,
    workers: int,
    say: Callable[[str], None],
) -> None:
    """Serve until it is told to stop.

    url: of the database.  say: receives lines for whoever has started it.
    items: a table of items, whose columns limits may be about, and how it is read.
    """
    # Workers share the cores.
    torch.set_num_threads(1)
    # In a process of its own: workers are forked, and neither connections nor the threads that
    # read a model's files survive that. What is imported does, so that workers start at once.
    with (
        tempfile.TemporaryDirectory(prefix="fairhorizon-metrics-") as folder,
        ProcessPoolExecutor(1, mp_context=get_context("fork")) as first,
    ):
        filling = first.submit(_prepared, url, settings, run, limits, items, address)
        os.environ[METRICS_FOLDER] = folder
        # Imported after the variable is set, which the metrics read when they are imported.
        import fairhorizon.service.app  # noqa: F401

        notes, fault = filling.result()
        first.shutdown()
        if fault:
            raise ConfigError(fault)
        for note in notes:
            say(f"note: {note}")
        database = Database(url)
        if workers > 1 and database.dialect == SQLITE:
            say("note: workers take turns writing to SQLite (PostgreSQL serves them side by side)")
        gc.collect()
        # What is imported stays: workers share its memory, and their collectors skip it.
        gc.freeze()
        say(f"serving at {address} with {workers} worker{'s' * (workers > 1)}, data in {database}")
        _listen(partial(application, url, settings, address.is_local), address, workers)


def _prepared(
    url: str,
    settings: ServiceSettings,
    run: Path | None,
    limits: tuple[str, ...],
    items: tuple[Path, FileColumns] | None,
    address: Address,
) -> tuple[list[str], str]:
    """Set the database up, and see that it is safe to serve it at this address.

    Returns notes for whoever has started the service, and what is wrong, if something is.
    """
    database = Database(url)
    try:
        if settings.webhook is not None:
            check_address(settings.webhook)
        table = [] if items is None else read_items(*items)
        notes = set_up(database, settings, run=run, asked=limits, described=table)
        _check_safe(database, address)
    except FairHorizonError as error:
        return [], str(error)
    finally:
        database.close()
    return notes, ""


def _check_safe(database: Database, address: Address) -> None:
    if address.is_local:
        return
    with database.reading() as connection:
        if keys.any_in_use(connection):
            return
    raise ConfigError(
        f"{address.host}: others can reach this address, and there are no keys (make one first: "
        "fairhorizon keys make --role admin --name NAME --database ...)"
    )


def application(url: str, settings: ServiceSettings, is_local: bool) -> Any:
    """The application of one worker."""
    from fairhorizon.service.app import build_app
    from fairhorizon.service.background import Service

    # Threads take turns more often: answers need not wait for the thread that makes lists.
    sys.setswitchinterval(0.001)
    return build_app(Service(Database(url), settings, open_to=LOCAL if is_local else ()))


def _listen(load: Callable[[], Any], address: Address, workers: int) -> None:
    from granian.constants import Interfaces
    from granian.log import LogLevels
    from granian.server import Server

    server = Server(
        "fairhorizon",
        address=address.host,
        port=address.port,
        interface=Interfaces.ASGI,
        workers=workers,
        websockets=False,
        respawn_failed_workers=True,
        workers_kill_timeout=STOP_WITHIN,
        log_level=LogLevels.warning,
        ssl_cert=address.certificate,
        ssl_key=address.key,
    )
    server.serve(target_loader=load, wrap_loader=False)
