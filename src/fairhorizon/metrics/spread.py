"""Shared by the rows of all studies: means with deviations, and numbers in strict JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np


def strict_json(content: Any) -> Any:
    """Content for strict JSON: non-finite numbers become null, tuples become lists."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: strict_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [strict_json(value) for value in content]
    return content


def finite(value: float) -> float | None:
    """The value; None where it is infinite or undefined."""
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation; None where one of the values is not known."""

    mean: float | None = None
    std: float | None = None

    @classmethod
    def from_values(cls, values: Sequence[float | None]) -> Self:
        """The deviation of a single value is 0."""
        # One missing seed makes the mean unknown: leaving it out would flatter methods whose runs
        # fail.
        known = [value for value in values if value is not None and math.isfinite(value)]
        if len(known) < len(values):
            return cls()
        sample = np.array(known, dtype=np.float64)
        return cls(float(sample.mean()), float(sample.std(ddof=1)) if len(sample) > 1 else 0.0)
