"""The results of an audit of a system's lists."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.results.evaluation import EvaluationRow

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
        content = asdict(self) | {"from_history_share": self.from_history_share}
        # programs read this key since the first version
        return {"users_judged" if key == "users_measured" else key: content[key] for key in content}


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

    @property
    def change(self) -> float:
        return self.of_exposure - self.of_training


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

    @property
    def is_named(self) -> bool:
        """Whether the system was given a name."""
        return self.row.method != UNNAMED

    def to_json(self) -> dict[str, Any]:
        """The row and its counts, without single items."""
        return {"rows": [self.row.to_json() | {"counts": self.counts.to_json()}]}
