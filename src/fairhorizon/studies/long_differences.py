"""The first method of a long run against each other one, user by user."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairhorizon.metrics.significance import paired_difference
from fairhorizon.metrics.spread import finite
from fairhorizon.studies.long_rows import LongDifference


def long_differences(
    method: str, ndcg: Mapping[str, Sequence[NDArray[np.float64]]], seeds: Sequence[int]
) -> list[LongDifference]:
    """NDCG of a method minus that of each other one, at the end of the runs.

    ndcg: by method, for each of its seeds (n_users,). A user's value is the mean over the seeds,
    and differences are paired over users. Runs of an older version have no such values: without
    those of `method` there is nothing to compare.
    """
    if method not in ndcg:
        return []
    of_users = {name: np.mean(runs, axis=0) for name, runs in ndcg.items()}
    own, rows = of_users.pop(method), []
    for rival, theirs in of_users.items():
        found = paired_difference(own, theirs)
        ends = (finite(end) for end in (found.mean, found.low, found.high))
        rows.append(LongDifference(method, rival, tuple(seeds), found.users, *ends))
    return rows
