"""The results of an audit of a system's lists."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.evaluation.short_term import EvaluationRow
from fairhorizon.limits.measured import Verdict
from fairhorizon.metrics.spread import strict_json

UNNAMED = "audit"  # the name of an audited system without a name
ALL = "all"  # in place of K: every impression of a log


@dataclass(frozen=True)
class AuditCounts:
    """The numbers of users and rows behind the metrics of an audit."""

    kind: str  # lists or impressions
    order: str  # the order of a user's showings
    users: int  # of the data
    users_without_list: int
    users_measured: int  # with a list and with test items
    shown: int  # rows, repeats included
    from_history: int  # of those, items that the user had taken before the test items
    shorter_lists: dict[int, int]  # by K
    unknown_rows: int  # left out
    duplicate_rows: int = 0  # same as an earlier row; left out, but in a log by time
    negative_ranks: int = 0  # rows; the smallest rank is on top
    skipped_ranks: int = 0  # places that no item has; lists close up
    gapped_lists: int = 0  # lists with such places

    @property
    def from_history_share(self) -> float:
        return self.from_history / self.shown

    @property
    def lists(self) -> int:
        return self.users - self.users_without_list

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"from_history_share": self.from_history_share}


@dataclass(frozen=True)
class GroupExposure:
    """The size and the exposure of a group of items; shares of all."""

    group: str  # G0 or G1
    items: int
    of_catalogue: float
    of_training: float
    of_exposure: float
    per_item: float  # NaN in an empty group


@dataclass(frozen=True)
class ItemExposure:
    """How often an item was shown, and its shares of all showings and of the training log."""

    item: str
    group: str  # G0 or G1
    shown: int
    of_exposure: float
    of_training: float
    title: str = ""  # of the item, where a table of items has one

    @property
    def change(self) -> float:
        return self.of_exposure - self.of_training


@dataclass(frozen=True)
class RankExposure:
    """The share that a group has of the showings at each rank."""

    group: str
    of_exposure: float  # at all ranks
    shares: tuple[float, ...]  # at ranks 1, 2, ...


@dataclass(frozen=True)
class ByRank:
    """What each group has of the lists, place by place; empty of an impression log."""

    showings: tuple[int, ...] = ()  # at ranks 1, 2, ...: of lists that are so long
    groups: tuple[RankExposure, ...] = ()

    def share(self, group: RankExposure, first: int, last: int) -> float:
        """The share of the group at the ranks from first to last; NaN where nothing is shown."""
        showings = self.showings[first - 1 : last]
        pairs = zip(group.shares[first - 1 : last], showings, strict=True)
        total = sum(showings)
        return sum(share * n for share, n in pairs) / total if total else math.nan


NO_RANKS = ByRank()


@dataclass(frozen=True)
class ProviderExposure:
    """What the items of a provider, such as a seller, are shown; shares of all."""

    provider: str
    items: int
    shown: int
    of_exposure: float
    of_training: float
    of_catalogue: float
    best_rank: int | None  # of its items in any list; None: never shown, or no lists

    @property
    def ratio(self) -> float:
        """Exposure by share of the training log; NaN of providers that it does not have."""
        return self.of_exposure / self.of_training if self.of_training else math.nan


@dataclass(frozen=True)
class AuditResult:
    """An audit: its metrics, the counts behind them, and the exposure of groups and items."""

    row: EvaluationRow
    counts: AuditCounts
    exposure: NDArray[np.int64]  # (n_items,) how often each item was shown
    training: NDArray[np.int64]  # (n_items,) how often each item is in the training log
    sensitive: NDArray[np.bool_]  # (n_items,) G0
    groups: tuple[GroupExposure, ...]  # G0, G1
    most_over: tuple[ItemExposure, ...]  # shown most beyond their share of the training log
    most_under: tuple[ItemExposure, ...]  # shown most below it
    verdicts: tuple[Verdict, ...] = ()  # on the limits
    by_rank: ByRank = NO_RANKS
    provider_column: str = ""
    providers: tuple[ProviderExposure, ...] = ()  # the worst-off first

    @property
    def is_named(self) -> bool:
        """Whether the system was given a name."""
        return self.row.method != UNNAMED

    def to_json(self) -> dict[str, Any]:
        """The verdicts, the row and its counts, ranks and providers; without single items."""
        content: dict[str, Any] = {}
        if self.verdicts:
            content["verdicts"] = [one.to_json() for one in self.verdicts]
        content["rows"] = [self.row.to_json() | {"counts": self.counts.to_json()}]
        if self.by_rank.groups:
            content["by_rank"] = strict_json(asdict(self.by_rank))
        if self.provider_column:
            content["provider_column"] = self.provider_column
            rows = [asdict(one) | {"ratio": one.ratio} for one in self.providers]
            content["providers"] = strict_json(rows)
        return content
