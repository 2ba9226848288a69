"""Values of one user's candidates that are computed where they are needed."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fairhorizon.allocation.candidates import Offer
from fairhorizon.allocation.limit_matrix import Counts, Floats
from fairhorizon.metrics import accuracy

PROBABLE = 1 - 1e-6  # no item is certain: the value would be that of a certain one, whatever comes


@dataclass(frozen=True, eq=False)
class LikelyItems(Offer):
    """The candidates of one user in the order of their logits; the rest is computed where needed.

    The same probabilities and values as by `softmax_probabilities` and `item_values`.
    """

    total: float = 0.0  # the logarithm of the sum of exp(logit)
    likes: float = 1.0  # how many items the user is expected to take
    worth: float = 1.0  # that the user's values are multiplied by
    length: int = 1  # of the list

    def probabilities(self, columns: Counts) -> Floats:
        found: Floats = np.exp(self.order[columns].astype(np.float64) - self.total)
        return found

    def values(self, columns: Counts) -> Floats:
        likely = np.minimum(self.probabilities(columns), PROBABLE)
        liked: Floats = -np.expm1(self.likes * np.log1p(-likely))
        return liked * (self.worth / self.ideal)

    @property
    def ideal(self) -> float:
        """As the function `ideal`, of one user."""
        totals, most = _ideal_totals(self.length), min(self.likes, float(self.length))
        whole = int(most)
        rest = most - whole
        return totals[whole] + (rest * (totals[whole + 1] - totals[whole]) if rest else 0.0)


@lru_cache(maxsize=64)
def _ideal_totals(length: int) -> tuple[float, ...]:
    """DCG of the first 0, 1, ..., `length` places."""
    gains = accuracy.discount(np.arange(1, length + 1))
    return (0.0, *np.cumsum(gains).tolist())
