"""A crew on this machine: a process for each rank, watched by the one that starts them."""

import multiprocessing
import pickle
import signal
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import TypeVar

import torch
import torch.distributed as dist

from fairhorizon.agents.crew import PATIENCE, CrewMember, Meeting
from fairhorizon.engines.children import Beginning, starting, starting_children
from fairhorizon.engines.crews import (
    Failure,
    Message,
    RankDone,
    RankFailed,
    RankRow,
    watched,
    worked,
)
from fairhorizon.engines.worker import pickled

R = TypeVar("R")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class LocalCrew:
    """Processes of this machine; where there are as many GPUs, each has one of its own."""

    size: int
    threads: int = 1  # of each
    patience: float = PATIENCE  # seconds that a rank waits for the others

    def rows(self, members: Sequence[CrewMember[R]]) -> Generator[R]:
        # The parent keeps the store: its port is free then, and no rank has to come first.
        store = dist.TCPStore(  # type: ignore[attr-defined]
            LOOPBACK,
            0,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=self.patience),
        )
        meeting = Meeting(0, self.size, LOOPBACK, store.port, patience=self.patience)
        ranks = _RankProcesses()
        try:
            ranks.start(self.size, self.threads)
            for rank, member in enumerate(members):
                ranks.send(rank, member, replace(meeting.of(rank), device=self._device(rank)))
            yield from watched(ranks, self.size)
        finally:
            ranks.end()

    def _device(self, rank: int) -> str:
        return f"cuda:{rank}" if torch.cuda.device_count() >= self.size else "cpu"


class _RankProcesses:
    """The processes and the lines to them."""

    def __init__(self) -> None:
        self.processes: list[multiprocessing.process.BaseProcess] = []
        self.lines: list[Connection] = []
        self.working: set[int] = set()

    def start(self, size: int, threads: int) -> None:
        context = starting(threads)
        with starting_children(threads):
            for rank in range(size):
                line, far_end = context.Pipe()
                own = (far_end, Beginning.here(threads))
                process = context.Process(target=_work, args=own, daemon=True)
                process.start()
                far_end.close()  # so that the line ends with the process
                self.processes.append(process)
                self.lines.append(line)
                self.working.add(rank)

    def send(self, rank: int, member: CrewMember[R], meeting: Meeting) -> None:
        with suppress(OSError):  # it is dead, as will be seen
            self.lines[rank].send_bytes(pickled((pickled(member), meeting)))

    def receive(self, timeout: float | None) -> Sequence[tuple[int, Message]]:
        waiting = {self.lines[rank]: rank for rank in sorted(self.working)}
        return [(waiting[line], self._next(waiting[line])) for line in _ready(waiting, timeout)]

    def _next(self, rank: int) -> Message:
        try:
            message = pickle.loads(self.lines[rank].recv_bytes())
        except (EOFError, OSError):  # the line ends with the process
            message = RankFailed(Failure.LOST, self._end_of(rank))
        if not isinstance(message, RankRow):
            self.working.discard(rank)
        assert isinstance(message, RankRow | RankDone | RankFailed)
        return message

    def _end_of(self, rank: int) -> str:
        self.processes[rank].join()
        code = self.processes[rank].exitcode or 0
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}, perhaps for want of memory"
        return f"ended with exit code {code}"

    def end(self) -> None:
        for process, line in zip(self.processes, self.lines, strict=True):
            process.kill()
            process.join()
            line.close()


def _ready(lines: dict[Connection, int], timeout: float | None) -> list[Connection]:
    return [line for line in wait(list(lines), timeout) if isinstance(line, Connection)]


def _work(line: Connection, beginning: Beginning) -> None:
    """What a process does: the member that it is sent."""
    beginning.begin()
    parcel, meeting = pickle.loads(line.recv_bytes())
    for message in worked(parcel, meeting):
        line.send_bytes(message)
