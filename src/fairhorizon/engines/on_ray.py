"""Tasks and shards on a Ray cluster. The only module that imports Ray."""

import logging
import os
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

from fairhorizon.engines.addresses import connect_to, connected
from fairhorizon.engines.engine import AGAIN, ATTEMPTS, PAUSE, Maker, Shards, Work, lost_task
from fairhorizon.engines.shards import CalledShards
from fairhorizon.engines.surroundings import FarShard, Surroundings, finished_there
from fairhorizon.engines.worker import THREADS, pickled
from fairhorizon.errors import ConfigError, FairHorizonError

R = TypeVar("R")
# with a worker its task is lost; Ray tries none of them again, so that all are counted here
LOST = (WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError, RayActorError)
LARGE = 100_000  # bytes of a message that goes into the object store, where many read it
LONGEST_PATH = 30  # characters of the folder of Ray's sockets, whose paths may have 107


class OnRay:
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
        self._done = self._total = 0

    def __enter__(self) -> Self:
        return self

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
        self._begin()
        return sum(cpus // self.threads for cpus in _cpus_of_nodes())

    @property
    def progress(self) -> str:
        if not ray.is_initialized():
            return ""
        with connected():
            nodes = len(_cpus_of_nodes())
        return f"{self._done}/{self._total} tasks on {nodes} node{'s'[: nodes != 1]}"

    def each(
        self,
        tasks: Sequence[Work[R]],
        *,
        goes_on: str = AGAIN,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Iterator[R]:
        self._done, self._total = 0, len(tasks)
        if not tasks:
            return
        self._begin()
        run = ray.remote(max_retries=0, **self._needs(self.threads))(finished_there)
        own, parcels = Surroundings.here(self.threads), [parcelled(pickled(one)) for one in tasks]
        left, losses = deque(range(len(tasks))), Counter[int]()
        running: dict[Any, int] = {}
        try:
            while left or running:
                with connected(goes_on):
                    while left and len(running) < (self.jobs or len(tasks)):
                        number = left.popleft()
                        running[run.remote(parcels[number], own)] = number
                    ready = ray.wait(list(running), timeout=PAUSE)[0]
                for reference in ready:
                    number = running.pop(reference)
                    try:
                        with connected(goes_on):
                            answer = ray.get(reference)
                    except LOST as error:
                        losses[number] += 1
                        if losses[number] == ATTEMPTS:
                            raise FairHorizonError(lost_task(goes_on)) from error
                        left.appendleft(number)
                        continue
                    self._done += 1
                    yield from answer.get()
                meanwhile()
        finally:
            if ray.is_initialized():  # else they ended with it
                for reference in running:
                    ray.cancel(reference, force=True)

    @contextmanager
    def shards(self, makers: Sequence[Maker]) -> Iterator[Shards]:
        self._begin()
        # no CPU is kept for a shard: on a small cluster, or after the loss of a node, it would
        # never start
        actor = ray.remote(max_restarts=0, **self._needs(0))(FarShard)
        shards = CalledShards(makers, RayActors(actor, Surroundings.here(self.threads)))
        try:
            shards.make()
            yield shards
        finally:
            shards.close()

    def _needs(self, cpus: int) -> dict[str, Any]:
        return {"num_cpus": cpus, "runtime_env": {"env_vars": {THREADS: str(self.threads)}}}

    def _begin(self) -> None:
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
        connect_to(address, lambda: ray.init(address, **quiet))
        if self.threads > max(_cpus_of_nodes(), default=0):
            raise ConfigError(f"--threads {self.threads}: no node has so many CPUs (give fewer)")


class RayActors:
    """Starts an actor for each shard, on one node after the other."""

    def __init__(self, actor: Any, own: Surroundings) -> None:
        self.actor, self.own, self.started = actor, own, 0

    def parcel(self, message: bytes) -> Any:
        return parcelled(message)

    def start(self) -> "RayActor":
        nodes = [node["NodeID"] for node in _nodes()]
        there = NodeAffinitySchedulingStrategy(nodes[self.started % len(nodes)], soft=True)
        self.started += 1
        return RayActor(self.actor.options(scheduling_strategy=there).remote(self.own))


class RayActor:
    """An actor with a shard, and the answer that it owes."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.owed: Any = None

    def send(self, parcel: Any) -> None:
        with connected():
            self.owed = self.handle.answer.remote(parcel)

    def receive(self) -> bytes | None:
        try:
            with connected():
                answer: bytes = ray.get(self.owed)
        except LOST:
            return None
        return answer

    def end(self) -> None:
        if ray.is_initialized():  # else it ended with it
            ray.kill(self.handle)


def parcelled(message: bytes) -> Any:
    """A message as an argument: a large one is put into the object store once."""
    return ray.put(message) if len(message) > LARGE else message


def _nodes() -> list[dict[str, Any]]:
    """What Ray knows of the nodes that work and have CPUs, always in the same order."""
    found = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    return sorted(found, key=lambda node: str(node["NodeID"]))


def _cpus_of_nodes() -> list[int]:
    return [int(node["Resources"]["CPU"]) for node in _nodes()]


def _short_folder() -> Path:
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp("", "fh-", usual if len(usual) <= LONGEST_PATH else "/tmp"))
