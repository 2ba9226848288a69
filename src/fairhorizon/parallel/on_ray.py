"""Tasks and blocks on a Ray cluster. The only module that imports Ray."""

import logging
import os
import pickle
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fairhorizon import __version__
from fairhorizon.errors import ConfigError, FairHorizonError
from fairhorizon.parallel.engine import (
    AGAIN,
    ATTEMPTS,
    PAUSE,
    THREADS,
    Answer,
    BlockHolder,
    TaskEngine,
    Work,
    WorkerLostError,
    pickled,
    run_task,
    sendable,
    set_threads,
)

R = TypeVar("R")
# Ray itself tries nothing again, so that all losses are counted in one place.
LOST = (WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError, RayActorError)
LARGE = 100_000  # bytes of a message that goes into the object store, where many read it
LONGEST_PATH = 30  # characters of the folder of Ray's sockets, whose paths may have 107
CLIENT = "ray://"  # begins the address for a machine that is not part of the cluster
REMEDY = "start a cluster with `ray start --head`, or leave out --address"
CLIENT_REMEDY = (
    "start a cluster with `ray start --head`; the port for ray:// is its "
    "--ray-client-server-port, 10001 without that"
)


class OnRay(TaskEngine):
    """At most `jobs` tasks at a time, None: as many as the cluster has CPUs for.

    Ray is started, or connected to, when there is something to run. At the end, a Ray that was
    started here is shut down, one at an address is disconnected from, and one that this process
    had before is left as it is.

    threads: of each worker.
    """

    def __init__(
        self, address: str | None = None, jobs: int | None = None, threads: int = 1
    ) -> None:
        self.address, self.jobs, self.threads = address, jobs, threads
        self._folder: Path | None = None  # of a Ray that was started here
        self._is_ours = False  # started or connected to here
        self._blocks_started = 0
        environment = {"env_vars": {THREADS: str(threads)}}
        self._run = ray.remote(max_retries=0, num_cpus=threads, runtime_env=environment)(run_there)
        # No CPU is kept for a block: on a small cluster, or after the loss of a node, it would
        # never start.
        self._holder = ray.remote(max_restarts=0, num_cpus=0, runtime_env=environment)(HolderThere)

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            ray.shutdown()
            self._is_ours = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def workers(self) -> int:
        if self.jobs is not None:
            return self.jobs
        self._start()
        return sum(cpus // self.threads for cpus in _cpus_of_nodes())

    @property
    def progress(self) -> str:
        if not ray.is_initialized():
            return ""
        with connected():
            nodes = len(_cpus_of_nodes())
        return f"{self.done}/{self.total} tasks on {nodes} node{'s'[: nodes != 1]}"

    def each(
        self,
        tasks: Sequence[Work[R]],
        *,
        remedy: str = AGAIN,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Iterator[R]:
        if tasks:
            self._start()
        try:
            yield from super().each(tasks, remedy=remedy, meanwhile=meanwhile)
        except ConnectionLostError as error:
            raise ConnectionLostError(remedy) from error.__cause__

    @property
    def _most_at_once(self) -> int:
        return self.jobs or self.total

    def _begin(self, task: Work[Any]) -> Any:
        with connected():
            return self._run.remote(self.parcel(pickled(task)), CommandHome.here(self.threads))

    def _finished(self, running: Sequence[Any]) -> Iterable[Any]:
        with connected():
            return ray.wait(list(running), timeout=PAUSE)[0]

    def _answer(self, finished: Any) -> Answer:
        answer: Answer = _result(finished)
        return answer

    def _cancel(self, running: Iterable[Any]) -> None:
        if ray.is_initialized():  # else they ended with it
            for reference in running:
                ray.cancel(reference, force=True)

    def start_worker(self) -> "RayActor":
        """On one node after the other."""
        self._start()
        with connected():
            nodes = [node["NodeID"] for node in _nodes()]
            node = nodes[self._blocks_started % len(nodes)]
            self._blocks_started += 1
            actor = self._holder.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True)
            )
            return RayActor(actor.remote(CommandHome.here(self.threads)))

    def parcel(self, message: bytes) -> Any:
        """A large message is put into the object store, once for all who read it."""
        self._start()
        with connected():
            return ray.put(message) if len(message) > LARGE else message

    def _start(self) -> None:
        """Start Ray, or connect to it, unless that was done before."""
        if ray.is_initialized():
            return
        self._is_ours = True
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address is None:
            self._folder = _short_folder()
            cpus = self.threads * (self.jobs or max(1, (os.cpu_count() or 1) // self.threads))
            ray.init(
                "local",
                num_cpus=cpus,
                include_dashboard=False,
                _temp_dir=str(self._folder),
                **quiet,
            )
            return
        address = self.address
        connect(address, lambda: ray.init(address, **quiet))
        if self.threads > max(_cpus_of_nodes(), default=0):
            raise ConfigError(f"--threads {self.threads}: no node has so many CPUs (give fewer)")


class RayActor:
    """An actor that keeps a block."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def ask(self, parcel: Any) -> Any:
        with connected():
            return self.handle.answer.remote(parcel)

    def answer(self, asked: Any) -> bytes:
        answer: bytes = _result(asked)
        return answer

    def end(self) -> None:
        if ray.is_initialized():  # else it ended with it
            ray.kill(self.handle)


# Connecting to a cluster, and losing the connection.


class ConnectionLostError(FairHorizonError):
    """A client lost its cluster, and could not get it back."""

    def __init__(self, remedy: str) -> None:
        super().__init__(f"the connection to the cluster was lost ({remedy})")


@contextmanager
def connected() -> Iterator[None]:
    """Ask the cluster for something here; a ConnectionLostError if nobody answers any more."""
    try:
        yield
    except ConnectionError as error:
        raise ConnectionLostError(AGAIN) from error


def connect(address: str, ask: Callable[[], object]) -> None:
    """Connect to the cluster at an address; a ConfigError where it cannot be done."""
    try:
        check_port(address)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                ask()
                break
            except ConnectionAbortedError:
                # A cluster forks a process for every client out of one with threads, which fails
                # now and then (github.com/ray-project/ray/issues/63202). The next one may work.
                if attempt == ATTEMPTS:
                    raise
    except (OSError, ValueError, RuntimeError) as error:
        remedy = CLIENT_REMEDY if address.startswith(CLIENT) else REMEDY
        raise ConfigError(f"--address {address}: {_one_line(error)} ({remedy})") from error


def check_port(address: str) -> None:
    """Raise an OSError where nobody listens: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    elif address.startswith(CLIENT):
        raise ValueError("has no port")


def _one_line(error: Exception) -> str:
    """What is wrong; of the traceback of a far process, the error at its end."""
    text = str(error).strip()
    is_traceback = "Traceback (most recent call last)" in text
    return text.splitlines()[-1] if is_traceback else " ".join(text.split())


# Inside a worker of another machine.


@dataclass(frozen=True)
class CommandHome:
    """What a worker must have in common with its command: relative paths mean the same, too."""

    folder: Path
    version: str
    threads: int

    @classmethod
    def here(cls, threads: int) -> Self:
        return cls(Path.cwd(), __version__, threads)

    def enter(self) -> None:
        node = socket.gethostname()
        if self.version != __version__:
            raise ConfigError(
                f"node {node} has fairhorizon {__version__}, the command {self.version} (install "
                "the same on all nodes)"
            )
        try:
            os.chdir(self.folder)
        except OSError:
            raise ConfigError(
                f"node {node} has no folder {self.folder} (run the command in a folder that all "
                "nodes share)"
            ) from None
        set_threads(self.threads)


def run_there(task: bytes, home: CommandHome) -> Answer:
    """All rows of a pickled task."""
    try:
        home.enter()
        work = pickle.loads(task)
    except Exception as error:
        return Answer(error=sendable(error))
    return run_task(work)


class HolderThere(BlockHolder):
    """Keeps a block on another machine."""

    def __init__(self, home: CommandHome) -> None:
        super().__init__()
        self.home = home

    def answer(self, message: bytes) -> bytes:
        try:
            self.home.enter()
        except ConfigError as error:
            return pickled(Answer(error=sendable(error)))
        return super().answer(message)


def _result(reference: Any) -> Any:
    try:
        with connected():
            return ray.get(reference)
    except LOST as error:
        raise WorkerLostError from error


def _nodes() -> list[dict[str, Any]]:
    """What Ray knows of the nodes that work and have CPUs, always in the same order."""
    found = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    return sorted(found, key=lambda node: str(node["NodeID"]))


def _cpus_of_nodes() -> list[int]:
    return [int(node["Resources"]["CPU"]) for node in _nodes()]


def _short_folder() -> Path:
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp("", "fh-", usual if len(usual) <= LONGEST_PATH else "/tmp"))
