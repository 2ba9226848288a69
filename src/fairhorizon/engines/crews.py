"""What crews of all kinds have in common: what ranks send, and how they are watched."""

import pickle
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any
from typing import Protocol as Interface

from fairhorizon.agents.crew import CrewMember, LostRankError, Meeting
from fairhorizon.engines.worker import pickled
from fairhorizon.errors import FairHorizonError

HINDSIGHT = 2.0  # seconds: a rank that is lost takes the others along, and may be heard of last


class Failure(IntEnum):
    """Why a rank has failed, the likelier cause of what happened to the others last."""

    OTHER = 0  # anything, such as that another one does not answer
    OURS = 1  # an error that the user can correct
    LOST = 2  # it was killed, or its machine is gone


@dataclass(frozen=True)
class RankRow:
    """A result of rank 0."""

    value: Any


@dataclass(frozen=True)
class RankDone:
    """The last message of a rank that has done its work."""


@dataclass(frozen=True)
class RankFailed:
    """The last message of a rank that has not."""

    kind: Failure
    text: str


Message = RankRow | RankDone | RankFailed


class RankLines(Interface):
    """The lines to the ranks of a crew."""

    def receive(self, timeout: float | None) -> Sequence[tuple[int, Message]]:
        """Messages with the ranks they are from; none only after so many seconds without any.

        Every rank ends with `RankDone` or `RankFailed`, even if it was killed.
        """


def worked(parcel: bytes, meeting: Meeting) -> Iterator[bytes]:
    """Inside a rank: the messages of a pickled member at its work."""
    try:
        member: CrewMember[Any] = pickle.loads(parcel)
        for row in member.rows(meeting):
            if meeting.rank == 0:
                yield pickled(RankRow(row))
    except FairHorizonError as error:
        yield pickled(RankFailed(Failure.OURS, str(error)))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__} in {place.name}: {error}"
        yield pickled(RankFailed(Failure.OTHER, text))
    else:
        yield pickled(RankDone())


def watched(lines: RankLines, size: int) -> Generator[Any]:
    """The results of rank 0, until all ranks are done; an error as soon as one has failed."""
    working = size
    while working:
        received = lines.receive(None)
        for _, message in received:
            if isinstance(message, RankRow):
                yield message.value
        if failures := _failures(received):
            raise _cause(lines, failures, size)
        working -= sum(isinstance(message, RankDone) for _, message in received)


def _failures(received: Sequence[tuple[int, Message]]) -> dict[int, RankFailed]:
    return {rank: message for rank, message in received if isinstance(message, RankFailed)}


def _cause(lines: RankLines, failures: dict[int, RankFailed], size: int) -> FairHorizonError:
    """Not its consequences: ranks that have lost another one fail too, and may be heard first."""
    until = time.monotonic() + HINDSIGHT
    while (
        max(one.kind for one in failures.values()) < Failure.LOST
        and len(failures) < size
        and time.monotonic() < until
    ):
        failures |= _failures(lines.receive(until - time.monotonic()))
    rank, failed = max(failures.items(), key=lambda one: one[1].kind)  # of the like, the first
    if failed.kind is Failure.OURS:
        return FairHorizonError(failed.text)
    return LostRankError(f"rank {rank} of {size} {failed.text}")
