"""Results of the studies, as rows: of one seed as stored on disk, and of several as one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fairhorizon.evaluation.short_term import Result
from fairhorizon.limits.measured import LimitOutcome
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
class LimitRow:
    """A limit and what a method made of it under several seeds, as a LimitOutcome.

    Means over the seeds, but: `kept` under all of them; `violations`, `broken` and `n_lists` of all
    of them together. In a long run, whose lists are not kept, violations are the steps after the
    warm-up that broke the limit, `n_lists` is 0, and of a limit on lists `reached` is None.
    """

    method: str
    seeds: tuple[int, ...]
    limit: str
    asked: float
    is_floor: bool
    reached: float | None
    kept: bool
    n_lists: int
    broken: int | None = None
    at: Mapping[int, float] = field(default_factory=dict)
    weighed: float | None = None
    lists_above: float | None = None
    violations: int | None = None
    price: float | None = None

    @classmethod
    def from_seeds(cls, method: str, seeds: Sequence[int], found: Sequence[LimitOutcome]) -> Self:
        """found: of one limit, by seed."""
        first = found[0]
        # Lists of different seeds may have different lengths.
        places = [k for k in first.at if all(k in one.at for one in found)]
        return cls(
            method=method,
            seeds=tuple(seeds),
            limit=first.limit,
            asked=first.asked,
            is_floor=first.is_floor,
            reached=mean_of([one.reached for one in found]),
            kept=all(one.kept for one in found),
            n_lists=sum(one.n_lists for one in found),
            broken=_total([one.broken for one in found]),
            at={k: sum(one.at[k] for one in found) / len(found) for k in places},
            weighed=mean_of([one.weighed for one in found]),
            lists_above=mean_of([one.lists_above for one in found]),
            violations=_total([one.violations for one in found]),
            price=mean_of([one.price for one in found]),
        )

    def to_json(self) -> dict[str, Any]:
        places = {str(k): share for k, share in self.at.items()}
        return asdict(self) | {"seeds": list(self.seeds), "at": places}


@dataclass(frozen=True)
class SampleItem:
    """An item as a reader recognises it."""

    title: str  # or its id
    in_group: bool


@dataclass(frozen=True)
class SampleLists:
    """Lists of one user, side by side."""

    user: str
    headings: tuple[str, ...]  # of each list
    lists: tuple[tuple[SampleItem, ...], ...]
    group: str  # that items may be in


def typical_user(lists: NDArray[np.int64], members: NDArray[np.bool_]) -> int:
    """Of the users with the longest lists, the one whose share of a group is nearest to all lists'.

    lists: (n_users, K) item codes, -1 for an empty place; members: (n_items,).
    """
    filled = lists >= 0
    inside = filled & members[lists]
    lengths = filled.sum(axis=1)
    away = np.abs(inside.sum(axis=1) / np.maximum(lengths, 1) - inside.sum() / max(1, filled.sum()))
    # Only full lists are candidates; `argmin` takes the first of equally typical users.
    away[lengths < lengths.max()] = np.inf
    return int(away.argmin())


def sample_items(
    items: NDArray[np.int64],
    item_ids: NDArray[Any],
    titles: NDArray[Any] | None,
    members: NDArray[np.bool_],
) -> tuple[SampleItem, ...]:
    """The items of a list by their titles, or by their ids where there are none."""
    named = item_ids if titles is None else np.where(titles == "", item_ids.astype(str), titles)
    return tuple(SampleItem(str(named[item]), bool(members[item])) for item in items if item >= 0)


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
        metrics={
            key: Spread.from_values([row.metrics[key] for row in rows]) for key in first.metrics
        },
        seconds={key: float(np.mean([row.seconds[key] for row in rows])) for key in first.seconds},
        notes=tuple(sorted({note for row in rows for note in row.notes})),
        name=first.method if name is None else name,
        alpha_prime=first.alpha_prime,
        settings=first.settings,
        limit_missed=sum(row.keeps_limit is False for row in rows),
    )


def mean_of(values: Sequence[float | None]) -> float | None:
    """None where one is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
