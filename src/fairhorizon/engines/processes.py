"""Tasks and shards in processes of this machine, with a clean stop by Ctrl-C."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Self, TypeVar

from fairhorizon.engines.children import Beginning, starting, starting_children
from fairhorizon.engines.engine import AGAIN, ATTEMPTS, PAUSE, Maker, Shards, Work, lost_task
from fairhorizon.engines.pipes import Pipes
from fairhorizon.engines.shards import CalledShards
from fairhorizon.engines.worker import finished
from fairhorizon.errors import FairHorizonError

R = TypeVar("R")


class Processes:
    """At most `jobs` processes at a time; a single one is this one, with the threads it has.

    In a `with` statement they are kept from one call to the next, with the data that they have
    read.

    threads: of each of several processes.
    """

    def __init__(self, jobs: int = 1, threads: int = 1) -> None:
        self.jobs, self.threads = jobs, threads
        self._is_entered = False
        self._kept: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._is_entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_entered = False
        self._end(at_once=kind is not None)  # nobody waits for tasks after Ctrl-C

    @property
    def workers(self) -> int:
        return self.jobs

    @property
    def progress(self) -> str:
        return ""  # a line per result says it all

    def each(
        self,
        tasks: Sequence[Work[R]],
        *,
        goes_on: str = AGAIN,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Iterator[R]:
        if min(self.jobs, len(tasks)) <= 1:
            for task in tasks:
                yield from task.rows()
            return
        left = dict(enumerate(tasks))
        for attempt in range(1, ATTEMPTS + 1):
            try:
                for number, rows in self._each_once(left, meanwhile):
                    del left[number]
                    yield from rows
                return
            except BrokenProcessPool as error:  # which of its processes was lost is not known
                if attempt == ATTEMPTS:
                    raise FairHorizonError(lost_task(goes_on)) from error

    def _each_once(
        self, tasks: dict[int, Work[R]], meanwhile: Callable[[], object]
    ) -> Iterator[tuple[int, list[R]]]:
        """The rows of each task under its number."""
        with self._pool() as pool:
            with starting_children(self.threads):
                numbers = {pool.submit(finished, task): number for number, task in tasks.items()}
            unfinished = set(numbers)
            while unfinished:
                done, unfinished = wait(unfinished, PAUSE, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda one: one.exception() is not None):
                    yield numbers[future], future.result().get()
                meanwhile()

    @contextmanager
    def _pool(self) -> Iterator[ProcessPoolExecutor]:
        if self._kept is None:
            first = Beginning.here(self.threads).begin
            self._kept = ProcessPoolExecutor(self.jobs, starting(self.threads), initializer=first)
        try:
            yield self._kept
        except BaseException:
            self._end(at_once=True)
            raise
        if not self._is_entered:
            self._end()

    def _end(self, *, at_once: bool = False) -> None:
        """End the processes; at once: in the middle of their tasks."""
        pool, self._kept = self._kept, None
        if pool is None:
            return
        workers = list((pool._processes or {}).values()) if at_once else []
        pool.shutdown(wait=not at_once, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()

    @contextmanager
    def shards(self, makers: Sequence[Maker]) -> Iterator[Shards]:
        shards = CalledShards(makers, Pipes(self.threads))
        try:
            shards.make()
            yield shards
        finally:
            shards.close()


HERE = Processes()  # one task after the other, in this process
