"""Accuracy of all that was shown since a long run began, as one list per user."""

import torch
from torch import Tensor

from fairhorizon.histories import ItemSets
from fairhorizon.ranking import discount
from fairhorizon.simulation.feedback import Audience


class Accuracy:
    """NDCG and recall of each user's accumulated list, a step at a time.

    DCG adds up v_j times the value of the item shown at rank j of the whole list, the ideal DCG v_j
    times the value of the j-th best item, each when it is shown; v_j = 1 / log2(1 + j). Recall adds
    up values, of an item that is shown again the first one only.

    period: ranks after which the ideal list begins again with the best item, a multiple of K;
        None where no value counts twice.
    """

    def __init__(self, n_users: int, period: int | None = None) -> None:
        self.period = period
        self.dcg, self.ideal, self.found = torch.zeros(3, n_users, dtype=torch.float64)

    def add(
        self, values: Tensor, new_values: Tensor, audience: Audience, first: int
    ) -> dict[str, float]:
        """values: (b, K) of the items at ranks first + 1, ..., first + K; 0 for what earns nothing.
        new_values: the same, 0 also for items that were shown before.

        Means over the users with any item of positive value; NaN without any.
        """
        v = discount(torch.arange(first + 1, first + values.shape[1] + 1, dtype=torch.float64))
        best = first if self.period is None else first % self.period
        self.dcg += values @ v
        self.ideal += audience.best(best, best + values.shape[1]).cpu() @ v
        self.found += new_values.sum(1)
        total = audience.total().cpu()
        return {"ndcg": _mean_ratio(self.dcg, self.ideal), "recall": _mean_ratio(self.found, total)}

    def ndcg_of_users(self) -> Tensor:
        """(n_users,) of all that was shown so far; NaN for users without any item of value."""
        return torch.where(self.ideal > 0, self.dcg / self.ideal, torch.nan)

    def tensors(self) -> dict[str, Tensor]:
        return {"dcg": self.dcg, "ideal": self.ideal, "found": self.found}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.dcg, self.ideal, self.found = (
            tensors[name].clone() for name in ("dcg", "ideal", "found")
        )


def values_of(lists: Tensor, spent: ItemSets, audience: Audience) -> Tensor:
    """(b, K) relevance of the items shown; 0 for those in `spent`, and for an item that stands
    earlier in the same list."""
    worthless = spent.contains(lists)
    if lists.shape[1] > 1:
        same = lists[:, :, None] == lists[:, None, :]
        worthless |= torch.tril(same, diagonal=-1).any(dim=2)
    return audience.relevance(lists).masked_fill(worthless, 0.0).cpu()


def _mean_ratio(parts: Tensor, wholes: Tensor) -> float:
    """Mean of part / whole over the users whose whole is not 0; NaN without any."""
    present = wholes > 0
    return float((parts[present] / wholes[present]).mean()) if present.any() else float("nan")
