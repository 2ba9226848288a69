"""Evaluations as rows of a study, and rows of several seeds as one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.evaluation.short_term import Result
from fairhorizon.results.spread import Spread, finite
from fairhorizon.results.studies import StudyRow, SummaryRow


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
