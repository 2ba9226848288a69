"""Results of the studies, as rows: of one seed as stored on disk, and of several as one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fairhorizon.evaluation.short_term import Result
from fairhorizon.metrics.spread import Spread, finite, strict_json
from fairhorizon.vocabulary import Mode, Protocol

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class TrainingRow:
    """A trained model and its training time."""

    name: str
    seconds: float


@dataclass(frozen=True)
class StudyRow:
    """One method under one seed, as stored on disk."""

    dataset: str
    method: str
    protocol: Protocol
    mode: Mode
    seed: int
    alpha_prime: float
    metrics: Mapping[str, float | None]  # fractions under keys as `ndcg@20`; None: undefined
    settings: Mapping[str, Any]
    seconds: Mapping[str, float]  # of fit and evaluate
    notes: tuple[str, ...]
    keeps_limit: bool | None = None  # the policy, in training; None: it was trained for no limit
    prices: Mapping[str, float] = field(default_factory=dict)  # of limits, by their texts

    def to_json(self) -> dict[str, Any]:
        return row_content(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """A ValueError where something is missing."""
        try:
            return cls(
                dataset=content["dataset"],
                method=content["method"],
                protocol=Protocol(content["protocol"]),
                mode=Mode(content["mode"]),
                seed=content["seed"],
                alpha_prime=content["alpha_prime"],
                metrics=dict(content["metrics"]),
                settings=dict(content["settings"]),
                seconds=dict(content["seconds"]),
                notes=tuple(content["notes"]),
                keeps_limit=content["keeps_limit"],
                prices=dict(content["prices"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a row of a study: {error}") from error


@dataclass(frozen=True)
class OverSeeds:
    """A method under several seeds: the base of all rows of means and deviations."""

    dataset: str
    method: str
    level: float | None  # of fairness; None: the method has no levels
    protocol: Protocol
    mode: Mode
    seeds: tuple[int, ...]
    metrics: Mapping[str, Spread]
    seconds: Mapping[str, float]  # means
    notes: tuple[str, ...]
    limit_missed: int = field(default=0, kw_only=True)  # seeds with no round that kept the limit

    def spread(self, metric: str) -> Spread:
        """An empty spread if the metric was not measured."""
        return self.metrics.get(metric, Spread())


@dataclass(frozen=True)
class SummaryRow(OverSeeds):
    """The results of a method, over seeds."""

    name: str  # of the method, without its level
    alpha_prime: float
    settings: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        keys = (
            *("dataset", "method", "protocol", "mode", "alpha_prime", "seeds"),
            *("metrics", "seconds", "settings", "notes", "limit_missed"),
        )
        return row_content(self, keys)


@dataclass(frozen=True)
class LevelRow(OverSeeds):
    """A method at a level; without metrics if, under some seed, no setting keeps the level."""

    level: float  # the largest share of the group
    limit: str  # the level as a limit, such as popular<=0.37
    ours: bool  # trained, and served at the level itself; all others are rivals
    settings: tuple[str | None, ...]  # by seed; None: no setting keeps the level
    dials: tuple[float, ...]  # the levels of those settings, if they have one
    above: int  # seeds with a rate above the level
    best_rival: bool = False
    counting: str = ""  # how the limit counts showings, in words; empty: all alike

    def to_json(self) -> dict[str, Any]:
        keys = (
            *("level", "limit", "dataset", "method", "protocol", "mode", "seeds"),
            *("ours", "best_rival"),
            *("settings", "above", "metrics", "seconds", "notes", "limit_missed"),
        )
        return row_content(self, keys)


@dataclass(frozen=True)
class GainRow:
    """Our method against a rival under a limit: the best one, or itself without CPO rounds.

    The difference of NDCG is paired over users, with an interval of 95 % confidence; a gain may be
    claimed only where the interval lies above 0.
    """

    level: float
    limit: str
    method: str
    rival: str
    best_rival: bool
    without_cpo: bool  # the rival is the same without CPO rounds
    same_parts: bool  # under this limit some rival is made of the same rankers
    ndcg: float
    rival_ndcg: float
    gain: float | None  # of NDCG, relative
    difference: float | None  # of NDCG
    low: float | None  # of the interval of the difference
    high: float | None
    gini_difference: float | None
    rate_difference: float | None
    users: int
    t_test: float | None
    t_test_corrected: float | None
    counting: str = ""  # how the limit counts showings, in words; empty: all alike

    @property
    def is_shown(self) -> bool:
        """Whether the interval shows a difference, to either side."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def to_json(self) -> dict[str, Any]:
        return row_content(self)


def row_content(row: "DataclassInstance", keys: Sequence[str] | None = None) -> dict[str, Any]:
    """The fields of a row in strict JSON: all of them, or some in this order."""
    fields = asdict(row)
    return {key: strict_json(fields[key]) for key in (fields if keys is None else keys)}


def study_row(
    result: Result,
    *,
    method: str,
    settings: Mapping[str, Any],
    seconds: Mapping[str, float],
    notes: tuple[str, ...],
    keeps_limit: bool | None = None,
    metrics: Mapping[str, float | None] | None = None,
) -> StudyRow:
    """The result of an evaluation as a row; `metrics` are added to those of the result."""
    found = {name: finite(value) for name, value in result.metrics.items()}
    return StudyRow(
        dataset=result.dataset,
        method=method,
        protocol=result.protocol,
        mode=result.mode,
        seed=result.seed,
        alpha_prime=result.alpha_prime,
        metrics=found | dict(metrics or {}),
        settings=settings,
        seconds=seconds,
        notes=notes,
        keeps_limit=keeps_limit,
        prices=result.prices,
    )


def save_lists(path: Path, lists: NDArray[np.int64]) -> None:
    """To a file of any name; NumPy by itself would add a suffix."""
    with path.open("wb") as file:
        np.save(file, lists)


def summary_row(
    rows: Sequence[StudyRow], *, name: str | None = None, level: float | None = None
) -> SummaryRow:
    """Rows that differ in nothing but the seed, as one; name: of the method without its level."""
    first = rows[0]
    return SummaryRow(
        dataset=first.dataset,
        method=first.method,
        level=level,
        protocol=first.protocol,
        mode=first.mode,
        seeds=tuple(row.seed for row in rows),
        metrics={key: Spread.of([row.metrics[key] for row in rows]) for key in first.metrics},
        seconds={key: float(np.mean([row.seconds[key] for row in rows])) for key in first.seconds},
        notes=tuple(sorted({note for row in rows for note in row.notes})),
        name=first.method if name is None else name,
        alpha_prime=first.alpha_prime,
        settings=first.settings,
        limit_missed=sum(row.keeps_limit is False for row in rows),
    )
