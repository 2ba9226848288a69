"""Tasks in several processes of one thread each, with a clean stop by Ctrl-C."""

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Protocol as Interface
from typing import TypeVar

import torch

from fairhorizon.errors import FairHorizonError

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
PAUSE = 2.0  # seconds


class Work(Interface[R_co]):
    """The task of one process."""

    def prepare(self) -> None:
        """Read the data."""

    def rows(self) -> Iterator[R_co]:
        """Run the task and yield its results."""


def each(
    tasks: Sequence[Work[R]],
    jobs: int,
    *,
    goes_on: str = "run the same command to continue",
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[R]:
    """The rows of all tasks, on `jobs` processes of one thread each.

    While they run, `meanwhile` is called every other second.
    """
    jobs = min(jobs, len(tasks))
    if jobs <= 1:
        for task in tasks:
            yield from task.rows()
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin) as pool:
        try:
            with _interrupt_held():
                unfinished = {pool.submit(_finish, task) for task in tasks}
            while unfinished:
                done, unfinished = wait(unfinished, PAUSE, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
                meanwhile()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise FairHorizonError(
                    "a training was killed, perhaps for want of memory "
                    f"({goes_on}; fewer jobs need less)"
                ) from error
            raise


@contextmanager
def _interrupt_held() -> Iterator[None]:
    """Delay Ctrl-C until all processes have started; they ignore it and are ended by the parent."""
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


def _begin() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End with the parent: otherwise a process would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _finish(task: Work[R]) -> list[R]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the data: the parent has shown them already
        task.prepare()
    return list(task.rows())
