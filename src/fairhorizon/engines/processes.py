"""Tasks and shards in processes of this machine, with a clean stop by Ctrl-C."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, TypeVar

from fairhorizon.engines.children import begin, starting_children
from fairhorizon.engines.engine import AGAIN, ATTEMPTS, PAUSE, Maker, Shards, Work, lost_task
from fairhorizon.engines.pipes import Pipes
from fairhorizon.engines.shards import CalledShards
from fairhorizon.engines.worker import finished
from fairhorizon.errors import FairHorizonError

R = TypeVar("R")


@dataclass(frozen=True)
class Processes:
    """At most `jobs` processes at a time; a single one is this one, with the threads it has.

    threads: of each of several processes.
    """

    jobs: int = 1
    threads: int = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is kept between calls."""

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
        self,
        tasks: dict[int, Work[R]],
        meanwhile: Callable[[], object],
    ) -> Iterator[tuple[int, list[R]]]:
        """The rows of each task under its number, in a pool of their own."""
        context = multiprocessing.get_context("spawn")
        jobs, own = min(self.jobs, len(tasks)), (self.threads,)
        with ProcessPoolExecutor(jobs, context, initializer=begin, initargs=own) as pool:
            try:
                with starting_children(self.threads):
                    numbers = {pool.submit(finished, task): n for n, task in tasks.items()}
                unfinished = set(numbers)
                while unfinished:
                    done, unfinished = wait(unfinished, PAUSE, return_when=FIRST_COMPLETED)
                    for future in sorted(done, key=lambda one: one.exception() is not None):
                        yield numbers[future], future.result().get()
                    meanwhile()
            except BaseException:
                workers = list((pool._processes or {}).values())
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in workers:
                    worker.terminate()
                raise

    @contextmanager
    def shards(self, makers: Sequence[Maker]) -> Iterator[Shards]:
        shards = CalledShards(makers, Pipes(self.threads))
        try:
            shards.make()
            yield shards
        finally:
            shards.close()


HERE = Processes()  # one task after the other, in this process
