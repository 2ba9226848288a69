"""What is asked for, what is known of who asks, what is answered, and why it may be refused."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.store.feedback import MOST_SHOWN
from fairhorizon.service.vocabulary import Source

Codes = NDArray[np.int64]


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
    answer: "Future[BuiltList]" = field(default_factory=Future)

    @property
    def source(self) -> Source:
        return Source.RECOMMEND if self.candidates is None else Source.RANK


@dataclass(frozen=True)
class UserHistories:
    """What the database knows of those who ask, by id.

    events: what they took or refused, oldest first.
    shown: their newest lists, oldest first; empty where nobody looks at them.
    """

    events: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    shown: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def answers(self, user: str, since: float, negative: Sequence[str]) -> list[bool]:
        """Whether each of the newest showings to a user was liked, oldest first.

        A like is feedback that names the list, and is neither `read` nor negative.
        """
        liked = {
            (row.list_id, row.item_id)
            for row in self.events.get(user, ())
            if row.list_id is not None and row.type not in negative
        }
        found = [
            (row.id, item) in liked
            for row in self.shown.get(user, ())
            if row.served_at > since
            for item in row.items
        ]
        return found[-MOST_SHOWN:]


@dataclass(frozen=True, eq=False)
class BuiltList:
    """A list as it will be recorded and answered."""

    id: str
    user: str
    source: Source
    codes: Codes  # of the items, by place
    items: list[str]
    scores: list[float]
    values: list[float]
    propensities: list[float] | None
    model: int | None  # that the values are of
    begun: float  # when its request came, by the clock of this process
    prices: dict[str, float] = field(default_factory=dict)
