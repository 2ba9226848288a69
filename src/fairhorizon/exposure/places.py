"""What a showing counts by its place in the list."""

import numpy as np
from numpy.typing import NDArray

from fairhorizon.exposure.limits import Limit
from fairhorizon.vocabulary import Weighing


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
