"""Who pays for a limit: accuracy by group of users, with the limit and without."""

from dataclasses import asdict, dataclass
from typing import Any

from fairhorizon.metrics.spread import strict_json


@dataclass(frozen=True)
class UserGroupRow:
    """A third of the users under a method and a limit.

    NDCG is the mean over the users and seeds. The difference is paired over users, with an interval
    of 95 % confidence.
    """

    level: float
    limit: str
    method: str
    ours: bool
    trait: str  # what users are sorted by: their activity, or their taste for the tail
    third: str  # of the users: least, middle, most
    users: int
    smallest: float  # value of the trait among them
    largest: float
    without: float  # NDCG without the limit
    limited: float  # NDCG with it
    difference: float
    low: float | None  # of the interval
    high: float | None
    counting: str = ""  # how the limit counts showings, in words; empty: all alike

    @property
    def is_shown(self) -> bool:
        """Whether the interval shows a difference, to either side."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = strict_json(asdict(self))
        return content
