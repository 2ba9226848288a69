"""Ridge regression from a user's recent items to the items that come next, in closed form."""

import math
from typing import Annotated

import torch
from pydantic import Field, field_validator
from torch import Tensor
from torch.nn.functional import embedding_bag

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.rankers.lag_counts import LagCounts, Scales
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.recency import frequent, longest_history
from fairhorizon.rankers.weights import strengths_by_user
from fairhorizon.settings import Choice, Search, Settings
from fairhorizon.vocabulary import OnEpoch

WORK = 1e12  # columns^2 x items; a solve beyond it takes minutes
SMALLEST_WEIGHT = 1e-3  # of an item of the history that still counts in scores
EXACT_COLUMNS = 2048  # up to here double precision costs next to nothing

Decay = Annotated[float, Field(gt=0, le=1)]


class RidgeConfig(Settings):
    """Settings of ridge."""

    decays: Annotated[
        tuple[Decay, ...],
        Field(min_length=1),
        Choice(((0.93,), (0.8, 0.97), (0.7, 0.9, 0.98), (0.9, 1.0), (1.0,))),
    ] = (0.8, 0.97)
    """Time scales, all different: by each of them an item of the history weighs decay^age, age 0
    for the newest; 1: all items weigh the same."""
    horizon: Annotated[int, Field(ge=1), Search(1, 20, log=True)] = 5
    """Number of items to come that a history is to predict (H)."""
    future: Annotated[float, Field(gt=0, le=1), Search(0.5, 1)] = 0.85
    """Weight of an item to come relative to that of the item before it (f)."""
    l2: Annotated[float, Field(gt=0), Search(30, 30_000, log=True)] = 6000.0
    """Weight of the L2 penalty on the coefficients (lambda)."""
    popularity: Annotated[float, Field(ge=0), Search(0, 0.6)] = 0.2
    """Scores are divided by the item's count to this power (b); 0: left as they are."""

    @field_validator("decays")
    @classmethod
    def _differ(cls, decays: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(decays)) < len(decays):
            raise ValueError("two time scales are the same (leave one out)")
        return decays


class Ridge(Ranker[RidgeConfig]):
    """Ridge regression from decayed histories, at several time scales, to the near future.

    After the session-linear models of Choi et al. (WWW 2021, SLIST). With s_t the features of a
    user's first t items and y_t the items that follow (see `Scales`),

        B = (sum_t s_t s_t' + lambda I)^-1 sum_t s_t y_t',    score(u) = s_u' B / count^b

    Both sums are counts of pairs by lag, so there is nothing to sample and nothing is random; an
    item that a user takes changes s_u alone. In a catalogue so large that the solve would take
    minutes, only the most frequent items are features: all items are scored, but what a user took
    of rare ones says nothing about the user. With weights, an item to come counts in y_t by the
    strength of its row (`rankers/weights.py`): what is predicted is how much is taken next.
    """

    method = "ridge"
    in_thread = True
    uses_weights = True
    config_class = RidgeConfig

    coefficients_: Tensor  # B / count^b, (scales x features, n_items)
    features_: Tensor  # (n_items,) the number of an item among the features, -1 if it is none
    longest_: int

    @property
    def scales(self) -> Scales:
        config = self.config
        return Scales(config.decays, config.horizon, config.future)

    @property
    def windows(self) -> tuple[int, ...]:
        """By each scale, the number of recent items that are read for scores."""
        numbers = range(len(self.config.decays))
        return tuple(self.scales.reach(p, SMALLEST_WEIGHT, self.longest_) for p in numbers)

    @property
    def queue_length(self) -> int:
        return max(self.windows)

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:  # noqa: ARG002  # no epochs
        histories = UserItems.of(split.train)
        features = frequent(histories, most_features(histories.n_items, len(self.config.decays)))
        exact = len(self.config.decays) * (int(features.max()) + 1) <= EXACT_COLUMNS
        dtype = torch.float64 if exact else torch.float32
        given = strengths_by_user(split.train)
        counts = LagCounts.of(histories, self.scales, features, dtype, given)
        self.features_, self.longest_ = features, longest_history(split)
        self.coefficients_ = solved(counts, self.config.l2, self.config.popularity)

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # the queue is enough
        width = len(self.coefficients_) // len(self.config.decays)
        n_items = len(self.features_)
        queue = queue[:, -self.queue_length :]
        known = self.features_.to(queue.device)[queue.clamp(max=n_items - 1)]
        known = known.masked_fill(queue == n_items, -1)
        age = torch.arange(queue.shape[1] - 1, -1, -1, device=queue.device)
        rows, weights = [], []
        for number, decay in enumerate(self.config.decays):
            window = self.windows[number]
            recent = known[:, -window:]
            rows.append((recent + number * width).where(recent >= 0, 0))
            weights.append((decay ** age[-window:]) * (recent >= 0))
        places, values = torch.cat(rows, dim=1), torch.cat(weights, dim=1).float()
        if places.shape[1] > len(self.coefficients_) // 8:  # not much fewer rows than all
            state = torch.zeros(len(queue), len(self.coefficients_), device=queue.device)
            return state.scatter_add_(1, places, values) @ self.coefficients_
        read = values > 0
        return embedding_bag(
            places[read],
            self.coefficients_,
            torch.nn.functional.pad(read.sum(1).cumsum(0)[:-1], (1, 0)),
            per_sample_weights=values[read],
            mode="sum",
        )

    def contributions(self, queue: Tensor, items: Tensor) -> Tensor:
        width, n_items = len(self.coefficients_) // len(self.config.decays), len(self.features_)
        known = self.features_[queue.clamp(max=n_items - 1)].masked_fill(queue == n_items, -1)
        age = torch.arange(len(queue) - 1, -1, -1)
        added = torch.zeros(len(queue), len(items))
        for number, decay in enumerate(self.config.decays):
            read = (known >= 0) & (age < self.windows[number])
            rows = self.coefficients_[(known + number * width).where(read, 0)][:, items]
            added += (decay**age * read)[:, None] * rows
        return added

    def tensors(self) -> dict[str, Tensor]:
        return {
            "coefficients": self.coefficients_,
            "features": self.features_,
            "longest": torch.tensor(self.longest_),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.coefficients_, self.features_ = tensors["coefficients"], tensors["features"]
        self.longest_ = int(tensors["longest"])


def most_features(n_items: int, scales: int) -> int:
    """As many items as the solve can take in a minute or so, at most all."""
    return max(1, min(n_items, int(math.sqrt(WORK / n_items) / scales)))


def solved(counts: LagCounts, l2: float, popularity: float) -> Tensor:
    """(columns, n_items) float32: B / count^b."""
    regularised = counts.gram.clone()
    regularised.diagonal().add_(l2)
    factor, failed = torch.linalg.cholesky_ex(regularised)
    if failed:
        raise ConfigError(f"ridge with l2={l2} has no solution (set a larger l2)")
    del regularised  # for a large catalogue each of these matrices takes gigabytes
    coefficients = torch.cholesky_solve(counts.target, factor)
    coefficients /= counts.following.clamp(min=1) ** popularity
    return coefficients.float().contiguous()
