"""Processes that a command starts: deaf to Ctrl-C, and never longer there than their parent."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Self

from fairhorizon.engines.worker import THREADS, set_threads

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

IMPORTED = ["fairhorizon.engines.imported"]  # before processes are forked


def starting(threads: int) -> "ForkServerContext | SpawnContext":
    """How processes are started, for as many threads each.

    On Linux they are forked from one that has imported torch, which each would otherwise do for
    seconds. It has one thread and has computed nothing, so that nothing is lost in a fork; where
    more threads are asked for, libraries start them when they are imported.
    """
    if sys.platform != "linux" or threads != 1:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


@dataclass(frozen=True)
class Beginning:
    """What a process takes over from the one that starts it."""

    threads: int
    variables: Mapping[str, str]  # the server that forks has those of the first time

    @classmethod
    def here(cls, threads: int) -> Self:
        return cls(threads, dict(os.environ))

    def begin(self) -> None:
        """The first thing that a process does."""
        os.environ.clear()
        os.environ.update(self.variables)
        set_threads(self.threads)
        threading.Thread(target=_end_with_parent, daemon=True).start()


@contextmanager
def starting_children(threads: int) -> Iterator[None]:
    """Start processes here: they compute with so many threads, and are deaf to Ctrl-C.

    Ctrl-C is delayed until all have started; it is the parent that ends them.
    """
    resource_tracker.ensure_running()  # where it is started later, it lets Ctrl-C through again
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(threads)  # read by a child before its first line of ours
    try:
        with _interrupt_held():
            yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


@contextmanager
def _interrupt_held() -> Iterator[None]:
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


def _end_with_parent() -> None:
    """End with the parent: otherwise a process would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
