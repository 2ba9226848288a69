"""Tasks and blocks in processes of this machine, with a clean stop by Ctrl-C.

A worker is a process that never outlives the command. Ctrl-C in a terminal goes to all processes of
a command; workers do not hear it, and the command ends them.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fairhorizon.parallel.engine import (
    AGAIN,
    PAUSE,
    THREADS,
    Answer,
    BlockHolder,
    TaskEngine,
    Work,
    WorkerLostError,
    run_task,
    set_threads,
)

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

R = TypeVar("R")
# Imported once for all workers. Torch imports its compiler when the first optimiser is made.
PRELOADED = ["scipy.optimize", "scipy.sparse", "torch", "torch._dynamo", "torch.distributed"]


class Processes(TaskEngine):
    """At most `jobs` tasks at a time; a single one runs in this process, with the threads it has.

    threads: of each of several workers.
    """

    def __init__(self, jobs: int = 1, threads: int = 1) -> None:
        self.jobs, self.threads = jobs, threads
        self._is_entered = False
        self._workers: list[WorkerProcess] = []
        self._busy: dict[Future[Answer], WorkerProcess] = {}

    def __enter__(self) -> Self:
        self._is_entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_entered = False
        self._end(list(self._workers))

    @property
    def workers(self) -> int:
        return self.jobs

    def each(
        self,
        tasks: Sequence[Work[R]],
        *,
        remedy: str = AGAIN,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Iterator[R]:
        if min(self.jobs, len(tasks)) <= 1:
            for task in tasks:
                yield from task.rows()
            return
        try:
            yield from super().each(tasks, remedy=remedy, meanwhile=meanwhile)
        finally:
            if not self._is_entered:
                self._end(list(self._workers))

    @property
    def _most_at_once(self) -> int:
        return self.jobs

    def _begin(self, task: Work[Any]) -> Future[Answer]:
        busy = self._busy.values()
        worker = next((worker for worker in self._workers if worker not in busy), None)
        if worker is None:
            worker = WorkerProcess(self.threads)
            self._workers.append(worker)  # before it starts, so that Ctrl-C can end it
        future = worker.call(run_task, task)
        self._busy[future] = worker
        return future

    def _finished(self, running: Sequence[Future[Answer]]) -> Iterable[Future[Answer]]:
        return wait(running, PAUSE, return_when=FIRST_COMPLETED).done

    def _answer(self, finished: Future[Answer]) -> Answer:
        worker = self._busy.pop(finished)
        try:
            return worker.answer(finished)
        except WorkerLostError:
            self._end([worker])
            raise

    def _cancel(self, running: Iterable[Future[Answer]]) -> None:
        self._end([self._busy.pop(future) for future in running if future in self._busy])

    def _end(self, workers: Iterable["WorkerProcess"]) -> None:
        for worker in workers:
            worker.end()
            self._workers.remove(worker)
        self._busy = {f: worker for f, worker in self._busy.items() if worker in self._workers}

    def start_worker(self) -> "WorkerProcess":
        return WorkerProcess(self.threads)


HERE = Processes()  # one task after the other, in this process


class WorkerProcess:
    """A process that is asked one thing at a time, and keeps what it has read."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        begin = Inherited.here(threads).take_over
        self._pool = ProcessPoolExecutor(1, start_method(threads), initializer=begin)

    def call(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
        with starting_processes(self.threads):  # which the pool does with the first task
            return self._pool.submit(function, *arguments)

    def ask(self, parcel: bytes) -> Future[bytes]:
        return self.call(_block_answer, parcel)

    def answer(self, asked: Future[R]) -> R:
        try:
            return asked.result()
        except BrokenProcessPool as error:
            raise WorkerLostError from error

    def end(self) -> None:
        """End it, in the middle of what it does."""
        processes = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


_block = BlockHolder()  # of this worker


def _block_answer(message: bytes) -> bytes:
    return _block.answer(message)


def start_method(threads: int) -> "ForkServerContext | SpawnContext":
    """How processes are started that compute with so many threads.

    On Linux they are forked from one that has imported torch, which each would otherwise do for
    seconds. It has one thread and has computed nothing, so nothing is lost in a fork. Where more
    threads are asked for, libraries would start them in it while they are imported.
    """
    if sys.platform != "linux" or threads != 1:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@dataclass(frozen=True)
class Inherited:
    """What a process takes over from the one that starts it."""

    threads: int
    variables: Mapping[str, str]  # those of a fork are from when the first process was started

    @classmethod
    def here(cls, threads: int) -> Self:
        return cls(threads, dict(os.environ))

    def take_over(self) -> None:
        """The first thing that a process does."""
        os.environ.clear()
        os.environ.update(self.variables)
        set_threads(self.threads)
        threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End with the parent: otherwise a process would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def starting_processes(threads: int) -> Iterator[None]:
    """Processes started here compute with so many threads and do not hear Ctrl-C.

    Ctrl-C is delayed until all have started; it is the parent that ends them.
    """
    resource_tracker.ensure_running()  # if it started later, it would unblock Ctrl-C
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(threads)  # read by a new process before its first line of ours
    try:
        with _interrupt_delayed():
            yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


@contextmanager
def _interrupt_delayed() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    can_block = hasattr(signal, "pthread_sigmask")  # not on Windows
    if can_block:  # processes started here inherit the blocked signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if can_block:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
