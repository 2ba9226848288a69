"""Accuracy and fairness of recommendation lists: arrays in, numbers out."""

from fairhorizon.metrics.accuracy import f1, hit_matrix, mean_over_users, ndcg, recall
from fairhorizon.metrics.fairness import (
    coverage,
    demographic_parity_gap,
    exact_k_violation_rate,
    exposure_counts,
    exposure_ratio,
    gini,
    lorenz_curve,
    popularity_rate,
)
from fairhorizon.metrics.hypervolume import dominated_area, pareto_front
from fairhorizon.metrics.significance import holm, paired_bootstrap, paired_t_test
from fairhorizon.metrics.summary import summarise

__all__ = [
    "coverage",
    "demographic_parity_gap",
    "dominated_area",
    "exact_k_violation_rate",
    "exposure_counts",
    "exposure_ratio",
    "f1",
    "gini",
    "hit_matrix",
    "holm",
    "lorenz_curve",
    "mean_over_users",
    "ndcg",
    "paired_bootstrap",
    "paired_t_test",
    "pareto_front",
    "popularity_rate",
    "recall",
    "summarise",
]
