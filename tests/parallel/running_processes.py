"""Processes that tests have started: what they say, which there are, when they have ended."""

import os
import select
from collections.abc import Iterable
from pathlib import Path


def descendants(ancestor: int) -> set[int]:
    """The processes that it has started, and those that these have started."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents[int(folder.name)] = int(after_name[1])
    found = {ancestor}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {ancestor}


def read_pipe(pipe: Path) -> str:
    """What is written first into a named pipe."""
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([reading], [], [], 300)[0], "nobody wrote"
        return os.read(reading, 100).decode()
    finally:
        os.close(reading)


def wait_for_the_end_of(processes: Iterable[int]) -> None:
    for process in processes:
        try:
            ending = os.pidfd_open(process)
        except ProcessLookupError:
            continue
        try:
            assert select.select([ending], [], [], 60)[0], "a process goes on"
        finally:
            os.close(ending)
