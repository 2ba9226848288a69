"""Processes that a command starts: deaf to Ctrl-C, and never longer there than their parent."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fairhorizon.engines.worker import THREADS, set_threads


@contextmanager
def starting_children(threads: int) -> Iterator[None]:
    """Start processes here: they compute with so many threads, and are deaf to Ctrl-C.

    Ctrl-C is delayed until all have started; it is the parent that ends them.
    """
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


def begin(threads: int) -> None:
    """The first thing that a process does."""
    set_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End with the parent: otherwise a process would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
