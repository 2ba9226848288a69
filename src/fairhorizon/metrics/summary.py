"""All metrics of one set of lists, by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.metrics import accuracy, fairness

ACCURACY = ("recall", "f1", "ndcg")  # the other metrics are of exposure


def summarise(
    lists: NDArray[np.integer[Any]],
    relevant: csr_array,
    popular: NDArray[np.bool_],
    *,
    ks: Sequence[int],
    alpha_prime: float,
) -> dict[str, float]:
    """Metrics as fractions under the keys `recall@5`, `f1@5`, ..., one k after the other."""
    if popular.shape != (relevant.shape[1],):
        raise ValueError(f"groups have shape {popular.shape}, relevant items {relevant.shape}")
    # Looked up once for the longest list; every k takes the first k columns.
    hits = accuracy.hit_matrix(lists, relevant)
    n_relevant = np.asarray((relevant != 0).sum(axis=1))
    result: dict[str, float] = {}
    for k in ks:
        counts = fairness.exposure_counts(lists, popular.size, k)
        values = {
            "recall": accuracy.mean_over_users(accuracy.recall(hits, n_relevant, k)),
            "f1": accuracy.mean_over_users(accuracy.f1(hits, n_relevant, k)),
            "ndcg": accuracy.mean_over_users(accuracy.ndcg(hits, n_relevant, k)),
            "gini": fairness.gini(counts),
            "popularity_rate": fairness.popularity_rate(lists, popular, k),
            "coverage": fairness.coverage(counts),
            "exposure_ratio": fairness.exposure_ratio(counts, popular),
            "demographic_parity_gap": fairness.demographic_parity_gap(counts, popular),
            "worst_off": fairness.worst_off_share(counts, popular),
            "exact_k_violation": fairness.exact_k_violation_rate(lists, popular, alpha_prime, k),
        }
        result |= {f"{name}@{k}": value for name, value in values.items()}
    return result
