"""The thread of a replica that makes lists: requests that wait are served together."""

import logging
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from fairhorizon.service.replica.replica import Replica
from fairhorizon.service.replica.requests import BuiltList, ListRequest
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database, DatabaseAwayError

NOTHING = ""  # what wakes the thread without a request
LOG = logging.getLogger("fairhorizon.service")


class Engine:
    """A replica at work. `submit` and `refresh` may be called from any thread."""

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self.database, self.settings = database, settings
        self.replica = Replica(database, settings)
        self._waiting: queue.SimpleQueue[ListRequest | str | None] = queue.SimpleQueue()
        self._refresh = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lists", daemon=True)

    @property
    def snapshot(self) -> ServingSnapshot | None:
        """What lists are made of now; None before the first was loaded."""
        return self.replica.snapshot

    @property
    def n_waiting(self) -> int:
        """Requests that nobody has looked at yet."""
        return self._waiting.qsize()

    def prepare(self) -> None:
        """Join and load; before `start`."""
        self.replica.make_ready()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, and give the leases back."""
        self._waiting.put(None)
        self._thread.join(timeout=10)
        try:
            self.replica.leave()
        except DatabaseAwayError:
            LOG.warning("the leases of this replica could not be given back; others will do it")

    def submit(self, request: ListRequest) -> "Future[BuiltList]":
        """The list of a request, once it is recorded."""
        self._waiting.put(request)
        return request.answer

    def refresh(self) -> None:
        """Load what has changed before the next request needs it."""
        self._refresh.set()
        self._waiting.put(NOTHING)

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while len(batch) < self.settings.batch and not self._waiting.empty():
                batch.append(self._waiting.get())
            requests = [
                one
                for one in batch
                if isinstance(one, ListRequest) and one.answer.set_running_or_notify_cancel()
            ]  # who has hung up needs no list, and none is counted
            if requests:
                self._serve(requests)
            elif self._refresh.is_set():
                self._refresh_now()
            if None in batch:
                return

    def _refresh_now(self) -> None:
        self._refresh.clear()
        try:
            self.replica.outdated()
            self.replica.make_ready()
        except DatabaseAwayError as error:
            self.replica.lost()
            LOG.warning("%s", error)
        except Exception:
            self.replica.lost()
            LOG.exception("what has changed could not be loaded")

    def _serve(self, requests: Sequence[ListRequest]) -> None:
        try:
            answers = self.replica.answer(requests)
        except Exception as error:
            if not isinstance(error, DatabaseAwayError):
                LOG.exception("lists could not be made")
            self.replica.lost()  # whether lists were recorded is not known
            for one in requests:
                one.answer.set_exception(error)
            return
        for one, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)
