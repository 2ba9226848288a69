"""The most popular items for all users: the baseline of all other methods."""

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.histories import strengths
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.settings import Settings
from fairhorizon.vocabulary import OnEpoch


class PopularityConfig(Settings):
    """Popularity has no settings."""


class Popularity(Ranker[PopularityConfig]):
    """The most popular items for all users: the score is the count in the training log.

    With weights it is the sum of the strengths of its rows (`histories.py`).
    """

    method = "popularity"
    in_thread = True
    uses_weights = True
    config_class = PopularityConfig

    counts_: Tensor  # (n_items,)

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:  # noqa: ARG002  # no epochs
        counts = torch.tensor(split.train.item_counts(), dtype=torch.float64)
        if (given := strengths(split.train)) is not None:
            counts = torch.zeros_like(counts)
            counts.index_add_(0, torch.tensor(split.train.items), given)
        # Ties go to the smaller code, as in the popular group: less than 1 is taken off the counts,
        # more of it the larger the code.
        self.counts_ = (counts - torch.arange(len(counts)) / len(counts)).float()

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # the same for all
        return self.counts_.expand(len(users), -1)

    def tensors(self) -> dict[str, Tensor]:
        return {"counts": self.counts_}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.counts_ = tensors["counts"]
