"""Evaluations as rows of a study."""

from collections.abc import Mapping
from typing import Any

from fairhorizon.evaluation.short_term import Result
from fairhorizon.results.spread import finite
from fairhorizon.results.studies import StudyRow


def study_row(
    result: Result,
    *,
    method: str,
    settings: Mapping[str, Any],
    seconds: Mapping[str, float],
    notes: tuple[str, ...],
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
    )
