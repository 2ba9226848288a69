"""NDCG@20 of every user, one-shot and standard, and differences of it: what benchmarks share."""

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.data.splits import Split
from fairhorizon.metrics.fairness import exposure_counts
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.interactive import ndcg_by_user
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

LENGTH = 20

ByUser = NDArray[np.float64]  # (n_users,), NaN for users without test items


def measured(model: Recommender, parts: Split) -> tuple[ByUser, NDArray[np.float64]]:
    """NDCG of every user, and how often each item is shown."""
    scenario = evaluation_scenario(parts, model.queue_length, Protocol.STANDARD)
    n_items = parts.train.n_items
    length = min(LENGTH, n_items)
    lists = model.recommend(scenario, length=length)
    ndcg = ndcg_by_user(torch.from_numpy(lists), torch.arange(len(lists)), scenario)
    return ndcg, exposure_counts(lists, n_items, length)


def ndcg_of(model: Recommender, parts: Split) -> ByUser:
    return measured(model, parts)[0]


def difference(ours: ByUser, theirs: ByUser, unit: float = 0.01) -> str:
    """The mean with its 95 % interval, paired over users; in percentage points by default."""
    gain = (ours - theirs)[~np.isnan(ours)] / unit
    error = 1.96 * gain.std(ddof=1) / len(gain) ** 0.5
    return f"{gain.mean():+.2f} +- {error:.2f}"
