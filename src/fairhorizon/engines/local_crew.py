"""A crew on this machine: one process for each rank, watched by the one that starts them."""

import multiprocessing
import pickle
import signal
import time
import traceback
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from fairhorizon.agents.crew import LostRankError, Meeting, Member
from fairhorizon.engines.processes import _begin, _interrupt_held
from fairhorizon.errors import ConfigError, FairHorizonError

R = TypeVar("R")
HERE = "127.0.0.1"
# Who is killed takes the others along: seconds in which to see who was first.
HINDSIGHT = 2.0


@dataclass(frozen=True)
class _Row:
    """A result of rank 0."""

    value: Any


@dataclass(frozen=True)
class _Ended:
    """The last message of a rank: its work is done, or this is what went wrong."""

    error: str = ""
    ours: bool = False  # an error with a remedy, for the user


class LocalCrew:
    """Processes of one thread each on this machine; with GPUs enough, each has one of its own."""

    def __init__(self, size: int, *, threads: int = 1, patience: float = 600.0) -> None:
        """patience: seconds that a rank waits for the others before it gives up."""
        if size < 1:
            raise ConfigError(f"{size} workers cannot train anything (give at least 1)")
        self.size, self.threads, self.patience = size, threads, patience

    def rows(self, members: Sequence[Member[R]]) -> Generator[R]:
        # The parent has the store: its port is free, and no rank has to come first.
        store = dist.TCPStore(  # type: ignore[attr-defined]
            HERE,
            0,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=self.patience),
        )
        meeting = Meeting(0, self.size, HERE, store.port, patience=self.patience)
        ranks: list[_Rank] = []
        try:
            resource_tracker.ensure_running()  # which lets Ctrl-C through again where it starts
            with _interrupt_held():
                ranks += [_Rank(rank, self.threads) for rank in range(self.size)]
            for rank, member in zip(ranks, members, strict=True):
                rank.begin(member, replace(meeting, rank=rank.number, device=self._device(rank)))
            yield from _watched(ranks)
        finally:
            for rank in ranks:
                rank.end()

    def _device(self, rank: "_Rank") -> str:
        return f"cuda:{rank.number}" if torch.cuda.device_count() >= self.size else "cpu"


class _Rank:
    """A process and the line to it."""

    def __init__(self, number: int, threads: int) -> None:
        self.number = number
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=_work, args=(theirs, threads), daemon=True
        )
        self.process.start()
        theirs.close()
        self.ended: _Ended | None = None

    def begin(self, member: Member[Any], meeting: Meeting) -> None:
        with suppress(BrokenPipeError):  # it is dead, which the watch finds
            self.line.send_bytes(pickle.dumps((member, meeting)))

    def messages(self) -> Generator[_Row | _Ended]:
        """What it has sent and is not read yet."""
        with suppress(EOFError, ConnectionResetError):  # it is dead, which the watch finds
            while self.line.poll():
                yield pickle.loads(self.line.recv_bytes())

    @property
    def is_dead(self) -> bool:
        return not self.process.is_alive()

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()


def _watched(ranks: Sequence[_Rank]) -> Generator[Any]:
    """The results of rank 0, until every rank is done; an error as soon as one is not."""
    while True:
        for rank in ranks:
            for message in rank.messages():
                if isinstance(message, _Row):
                    yield message.value
                else:
                    rank.ended = message
        if any(rank.is_dead if rank.ended is None else rank.ended.error for rank in ranks):
            raise _what_went_wrong(ranks)
        working = [rank for rank in ranks if rank.ended is None]
        if not working:
            return
        wait([*(rank.line for rank in working), *(rank.process.sentinel for rank in working)])


def _what_went_wrong(ranks: Sequence[_Rank]) -> Exception:
    """The cause, not its consequences: ranks that have lost another one fail too."""
    until = time.monotonic() + HINDSIGHT
    while time.monotonic() < until:
        for rank in ranks:
            if rank.is_dead and (rank.process.exitcode or 0) < 0:
                name = signal.Signals(-(rank.process.exitcode or 0)).name
                return LostRankError(
                    f"rank {rank.number} of {len(ranks)} was killed by {name}, perhaps for want of "
                    "memory"
                )
        time.sleep(0.05)
    for rank in ranks:
        for message in rank.messages():
            if isinstance(message, _Ended):
                rank.ended = message
    failed = [rank for rank in ranks if rank.ended is not None and rank.ended.error]
    for rank in failed:
        assert rank.ended is not None
        if rank.ended.ours:
            return FairHorizonError(rank.ended.error)
    if failed and failed[0].ended is not None:
        return LostRankError(f"rank {failed[0].number} of {len(ranks)}: {failed[0].ended.error}")
    dead = next(rank for rank in ranks if rank.is_dead)
    return LostRankError(f"rank {dead.number} of {len(ranks)} ended unexpectedly")


def _work(line: Connection, threads: int) -> None:
    """What a process does: the member it is sent."""
    _begin()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, and ends this process
    torch.set_num_threads(threads)
    try:
        member, meeting = pickle.loads(line.recv_bytes())
        for row in member.rows(meeting):
            if meeting.rank == 0:
                line.send_bytes(pickle.dumps(_Row(row)))
        line.send_bytes(pickle.dumps(_Ended()))
    except FairHorizonError as error:
        line.send_bytes(pickle.dumps(_Ended(str(error), ours=True)))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {last.name}: {error}"
        line.send_bytes(pickle.dumps(_Ended(where)))
