"""The accuracy of a model on the validation items, by which settings may be chosen."""

import numpy as np

from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.evaluation.short_term import check_fit, relevance
from fairhorizon.metrics.accuracy import hit_matrix, mean_over_users, ndcg
from fairhorizon.recommenders.base import Recommender
from fairhorizon.simulation.feedback import validation_scenario
from fairhorizon.vocabulary import Protocol

CUTOFF = 20


def validation_ndcg(
    model: Recommender, split: Split, protocol: Protocol | str = Protocol.STANDARD
) -> float:
    """NDCG@20 of the lists after the training items, against the validation items.

    In a catalogue of fewer than 20 items the lists hold all items.
    """
    check_fit(model, split)
    if not len(split.validation):
        raise DataError(
            f"{split.name or 'the split'} has no validation items to choose settings by",
            remedy="give more interactions, or split per user",
        )
    length = min(CUTOFF, split.train.n_items)
    scenario = validation_scenario(split, model.queue_length, Protocol(protocol))
    lists = model.recommend(scenario, length=length)
    relevant = relevance(split.validation)
    n_relevant = np.asarray((relevant != 0).sum(axis=1))
    return mean_over_users(ndcg(hit_matrix(lists, relevant), n_relevant, length))
