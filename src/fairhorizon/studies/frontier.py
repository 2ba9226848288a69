"""The paper's Figure 3: the accuracy of each method at each level of fairness."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairhorizon.methods import Method
from fairhorizon.recommenders.base import Levels
from fairhorizon.studies.rows import SummaryRow, row_content

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of sensitive items
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # spreads of a user's scores
LIMITS = (0.2, 0.4, 0.6, 0.8, 1.0)  # FCPO's alpha', each of which is a training
LEVELS = {
    **dict.fromkeys(("foe", "quota", "lists", "control", "pmmf", "fairco", "tfrom"), SHARES),
    "penalty": WEIGHTS,
    "fcpo": LIMITS,
}


@dataclass(frozen=True)
class HypervolumeRow:
    """The areas that the levels of a method dominate, as fractions."""

    method: str
    levels: int
    gini_area: float  # of (NDCG, 1 - Gini)
    popularity_area: float  # of (NDCG, 1 - popularity rate)

    def to_json(self) -> dict[str, Any]:
        return row_content(self)


def swept(method: Method) -> list[Method]:
    """The method at every level; alone if its level is set or if it has no levels."""
    if method.level is not None or method.capabilities.levels is Levels.NONE:
        return [method]
    return [replace(method, level=level) for level in LEVELS[method.reranker or method.base]]


def curves(rows: Sequence[SummaryRow]) -> dict[str, list[SummaryRow]]:
    """The rows of each method, sorted by level."""
    lines: dict[str, list[SummaryRow]] = {}
    for row in rows:
        lines.setdefault(row.name, []).append(row)
    for line in lines.values():
        line.sort(key=lambda row: row.level or 0.0)
    return lines
