"""Tasks and blocks on a Ray cluster. The only module that imports Ray."""

import logging
import os
import pickle
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

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
    ATTEMPTS,
    PAUSE,
    THREADS,
    BlockHolder,
    TaskEngine,
    Work,
    WorkerLostError,
    pickled,
    run_task,
    sendable,
    set_threads,
)

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
        self._holder = ray.remote(max_restarts=0, num_cpus=0, runtime_env=environment)(BlockHolder)

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
        with self._connected():
            nodes = len(_cpus_of_nodes())
        return f"{self.done}/{self.total} tasks on {nodes} node{'s'[: nodes != 1]}"

    @property
    def _most_at_once(self) -> int:
        return self.jobs or self.total

    def _begin(self, task: Work[Any]) -> Any:
        parcel = self.parcel(pickled(task))
        with self._connected():
            return self._run.remote(parcel, self._enter())

    def _finished(self, running: Sequence[Any]) -> Iterable[Any]:
        with self._connected():
            return ray.wait(list(running), timeout=PAUSE)[0]

    def answer(self, handle: Any) -> Any:
        try:
            with self._connected():
                return ray.get(handle)
        except LOST as error:
            raise WorkerLostError from error

    def _cancel(self, running: Iterable[Any]) -> None:
        if ray.is_initialized():  # else they ended with it
            for reference in running:
                ray.cancel(reference, force=True)

    def start_worker(self) -> Any:
        """On one node after the other."""
        self._start()
        with self._connected():
            nodes = [node["NodeID"] for node in _nodes()]
            # Blocks are large: spread over the nodes, and `soft`, as a node may be gone by the
            # time.
            node = nodes[self._blocks_started % len(nodes)]
            self._blocks_started += 1
            actor = self._holder.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True)
            )
            return actor.remote(self._enter())

    def ask(self, worker: Any, parcel: Any) -> Any:
        with self._connected():
            return worker.answer.remote(parcel)

    def end_worker(self, worker: Any) -> None:
        if ray.is_initialized():  # else it ended with it
            ray.kill(worker)

    def parcel(self, message: bytes) -> Any:
        """A large message is put into the object store, once for all who read it."""
        self._start()
        with self._connected():
            return ray.put(message) if len(message) > LARGE else message

    def _start(self) -> None:
        """Start Ray, or connect to it, unless that was done before."""
        if ray.is_initialized():
            return
        self._is_ours = True
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address is None:
            self._folder = _short_folder()
            # Ray runs a task per free CPU, so as many CPUs as the jobs together use threads.
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

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Ask the cluster for something here; an error with a remedy if nobody answers any more."""
        try:
            yield
        except ConnectionError as error:
            raise FairHorizonError(
                f"the connection to the cluster was lost ({self.remedy})"
            ) from error

    def _enter(self) -> Callable[[], None]:
        """What a worker calls to be at home where this command is."""
        return partial(enter, Path.cwd(), __version__, self.threads)


# ---- Connecting to a cluster ---------------------------------------------------------------------


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


def _nodes() -> list[dict[str, Any]]:
    """What Ray knows of the nodes that work and have CPUs, always in the same order."""
    found = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    return sorted(found, key=lambda node: str(node["NodeID"]))


def _cpus_of_nodes() -> list[int]:
    return [int(node["Resources"]["CPU"]) for node in _nodes()]


def _short_folder() -> Path:
    # Long paths of temporary folders, as on macOS, are too long for the names of sockets.
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp("", "fh-", usual if len(usual) <= LONGEST_PATH else "/tmp"))


# ---- Inside a worker of another machine ----------------------------------------------------------


def enter(folder: Path, version: str, threads: int) -> None:
    """Have in common with the command what results depend on; a ConfigError where that cannot be.

    folder: of the command, so that relative paths mean the same.
    """
    node = socket.gethostname()
    # Checked in every worker, as nodes are installed by hand.
    if version != __version__:
        raise ConfigError(
            f"node {node} has fairhorizon {__version__}, the command {version} (install the same "
            "on all nodes)"
        )
    try:
        os.chdir(folder)
    except OSError:
        raise ConfigError(
            f"node {node} has no folder {folder} (run the command in a folder that all nodes share)"
        ) from None
    set_threads(threads)


def run_there(task: bytes, enter: Callable[[], None]) -> list[Any] | Exception:
    """All rows of a pickled task, or what went wrong."""
    try:
        enter()
        work = pickle.loads(task)
    except Exception as error:
        return sendable(error)
    return run_task(work)
