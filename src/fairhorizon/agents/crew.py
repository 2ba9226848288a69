"""Several processes that work on one thing together: what each is given, and who runs them."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol as Interface
from typing import TypeVar

from fairhorizon.errors import FairHorizonError

PATIENCE = 600.0  # seconds
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Meeting:
    """Where the processes of a crew find each other, and which of them this one is."""

    rank: int
    size: int
    host: str  # of the store in which they leave their addresses
    port: int
    device: str = "cpu"  # that this rank computes on
    patience: float = PATIENCE  # to wait for the others at any point

    def of(self, rank: int) -> "Meeting":
        """The same for another rank."""
        return replace(self, rank=rank)


class CrewMember(Interface[R_co]):
    """The work of one rank; it is pickled to get there."""

    def rows(self, meeting: Meeting) -> Iterator[R_co]:
        """Meet the others and work with them; the results of rank 0 are those of the crew."""


class Crew(Interface):
    """Runs members side by side, one process each."""

    @property
    def size(self) -> int:
        """How many members it runs."""

    def rows(self, members: Sequence[CrewMember[R]]) -> Generator[R]:
        """The results of rank 0, as they come; all processes end with the iterator.

        A `LostRankError` if one of them ends before its work is done.
        """


class LostRankError(FairHorizonError):
    """A process of a crew was killed, or has lost the others."""


def trained_alone(method: str) -> str:
    """What is said to somebody who wants several to train a method that one has to."""
    return (
        f"{method} is trained by one process (leave out --workers and --engine; several can train "
        "a Gaussian policy over embeddings with buffer_rounds 1, as fcpo:paper does)"
    )
