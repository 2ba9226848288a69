"""What is asked for, and why it may be refused."""

import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.replica.recording import Decided
from fairhorizon.service.vocabulary import Source


class NoModelError(FairHorizonError):
    """There is no model to recommend with."""


class UnknownItemsError(FairHorizonError):
    """Candidates that nobody has described."""


@dataclass(frozen=True, eq=False)
class ListRequest:
    """A list for one user.

    categories: items have to be in all of them.
    candidates: of somebody else's recommender, with scores; None: those of the model.
    """

    user: str
    n: int
    categories: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    candidates: dict[str, float] | None = None
    begun: float = field(default_factory=time.perf_counter)
    answer: "Future[Decided]" = field(default_factory=Future)

    @property
    def source(self) -> Source:
        return Source.RECOMMEND if self.candidates is None else Source.RANK
