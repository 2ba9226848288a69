"""What a showing counts by its place in the list."""

import math

import numpy as np
from numpy.typing import NDArray

from fairhorizon.exposure.limits import Limit
from fairhorizon.metrics.shares import ROUNDING, whole_showings
from fairhorizon.vocabulary import Scope, Weighing


def place_weights(limit: Limit, length: int) -> NDArray[np.float64]:
    """(length,) what a showing at each place counts; 0 beyond the places that the limit is for."""
    places = np.arange(1, length + 1)
    match limit.weighing:
        case Weighing.NONE:
            weights = np.ones(length)
        case Weighing.LOG:
            weights = 1 / np.log2(1 + places)
        case Weighing.GIVEN:
            weights = np.zeros(length)
            given = limit.weights[:length]
            weights[: len(given)] = given
    if limit.first is not None:
        weights[limit.first :] = 0.0
    return weights


def bounds_in_list(limit: Limit, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(length,) fewest and most items of the group among the first 1, 2, .. places of a list.

    At most ceil(share K) of K places, and of a floor at least floor(share K), because a list has
    whole places; with scope `prefix` the same holds for every beginning of the list.
    """
    counted = np.minimum(np.arange(1, length + 1), limit.first or length)
    fewest, most = np.zeros_like(counted), counted.copy()
    ends = counted if limit.scope is Scope.PREFIX else np.full(length, counted[-1])
    if limit.is_floor:
        due = np.array([whole_showings(limit.share * end) for end in ends])
        left = counted[-1] - counted  # places that are still to come
        fewest = np.maximum(0, due - (left if limit.scope is Scope.LIST else 0))
    else:
        allowed = [math.ceil(limit.share * end - ROUNDING) for end in ends]
        most = np.minimum(counted, allowed)
    beyond = slice(limit.first or length, None)  # places that do not count
    fewest[beyond], most[beyond] = 0, length
    return fewest, most
