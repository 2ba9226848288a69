"""Ridge regression from a user's recent items to the items that come next, in closed form.

Its sums go from decayed histories to the decayed near future, by lags. A user's items are
i_0, ..., i_{n-1}. A prefix of t items that something follows, 1 <= t < n, has

    s_t = [sum_j d_1^(t-1-j) e_{i_j} ; sum_j d_2^(t-1-j) e_{i_j} ; ...]  over j < t     features
    y_t = sum_{h<H} f^h e_{i_{t+h}}                                                     target

In sum_t s_t y_t' the weight of a pair of items depends on its lag alone, and sum_t s_t s_t' follows
from such a count too: as s_t = d s_{t-1} + e_{i_{t-1}}, for the scales p and q and every user

    (1 - d_p d_q) sum_t s_t^p s_t^q'  =  d_p Z_p + d_q Z_q' + D - d_p d_q s_{n-1}^p s_{n-1}^q'

with Z_p = sum_{k<n-1} s_k^p e_{i_k}' and D = sum_{k<n-1} e_{i_k} e_{i_k}'. So the cost is
interactions x lags for each scale, and nothing is stored for a prefix.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field, field_validator
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import embedding_bag

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems, frequent, longest_history, strengths_by_user
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.settings import Choice, Search, Settings
from fairhorizon.storage import rounded_to_half
from fairhorizon.vocabulary import OnEpoch

NEGLIGIBLE = 10.0  # times the precision of the numbers: smaller weights of pairs are left out


@dataclass(frozen=True)
class Scales:
    """The weights of past and future items: d, H and f."""

    decays: tuple[float, ...]
    horizon: int
    future: float

    def ahead(self, scale: int, lag: int) -> float:
        """The weight of a pair in sum_t s_t y_t': the sum of d^(lag-1-h) f^h over h < H."""
        decay = self.decays[scale]
        # The pair counts in every prefix t between the two items for which the later one is within
        # H.
        return sum(decay ** (lag - 1 - h) * self.future**h for h in range(min(self.horizon, lag)))

    def reach(self, scale: int, smallest: float, most: int) -> int:
        """The number of recent items that have at least the `smallest` weight, up to `most`."""
        decay = self.decays[scale]
        if decay == 1:
            return most
        # decay^(n - 1) >= smallest, solved for n.
        return min(most, math.floor(math.log(smallest) / math.log(decay)) + 1)


@dataclass(frozen=True)
class LagCounts:
    """The sums over all prefixes of all users. A column is a feature at one of the scales."""

    scales: Scales
    features: Tensor  # (n_items,) the number of an item among the features, -1 if it is none
    gram: Tensor  # sum_t s_t s_t', (columns, columns)
    target: Tensor  # sum_t s_t y_t', (columns, n_items)
    following: Tensor  # sum_t y_t, (n_items,)

    @classmethod
    def from_histories(
        cls,
        histories: UserItems,
        scales: Scales,
        features: Tensor,
        dtype: torch.dtype,
        strengths: Tensor | None = None,
    ) -> "LagCounts":
        """The sums of a whole log.

        strengths: (n,) of the rows; an item to come counts so often in y_t.
        """
        pairs = _Pairs(histories, features, dtype)
        n_scales, width = len(scales.decays), pairs.width
        states = pairs.by_lag(scales)
        target = pairs.ahead(scales, states)
        if strengths is not None:
            # Strengths weigh what is predicted, y_t, and not the features s_t.
            weighed = _Pairs(histories, features, dtype, strengths)
            target = weighed.ahead(scales, weighed.by_lag(scales))
        # Z_p sums over k < n - 1, `states` over k < n: the last item of every user is taken off.
        before = states[:, :, features >= 0]  # Z
        for p in range(n_scales):
            before[p] -= pairs.before_last(scales, p)
        gram = torch.empty(n_scales, width, n_scales, width, dtype=dtype)
        for p in range(n_scales):
            # The Gram matrix is symmetric, so half of its blocks are computed.
            for q in range(p + 1):
                block = pairs.together(scales, p, q, before)
                gram[p, :, q], gram[q, :, p] = block, block.T
        return cls(
            scales,
            features,
            gram=gram.view(n_scales * width, -1),
            target=target.view(n_scales * width, -1),
            following=_following(histories, scales, dtype, strengths),
        )

    def add(self, history: Tensor, item: int) -> None:
        """Count one more interaction in place: a user with this history takes an item.

        The whole history is a new prefix, and the item follows the last H prefixes.
        """
        # The item follows the whole history directly (h = 0), and each shorter prefix h items
        # later.
        for h in range(min(self.scales.horizon, len(history))):
            state, weight = self.state(history[: len(history) - h]), self.scales.future**h
            self.target[:, item] += weight * state
            self.following[item] += weight
            if h == 0:
                self.gram.addr_(state, state)

    def state(self, history: Tensor) -> Tensor:
        """(columns,) s of a history, oldest item first."""
        state = self.gram.new_zeros(len(self.scales.decays), int(self.features.max()) + 1)
        # Newest first, so that the age of an item is its place.
        numbers = self.features[history].flip(0)
        for row, decay in zip(state, self.scales.decays, strict=True):
            weights = decay ** torch.arange(len(numbers), dtype=state.dtype)
            row.index_add_(0, numbers[numbers >= 0], weights[numbers >= 0])
        return state.flatten()


class _Pairs:
    """All pairs of items of a user, counted with weights."""

    def __init__(
        self,
        histories: UserItems,
        features: Tensor,
        dtype: torch.dtype,
        strengths: Tensor | None = None,  # (n,) of the later item of a pair
    ) -> None:
        self.n_items, self.width, self.dtype = histories.n_items, int(features.max()) + 1, dtype
        self.negligible = NEGLIGIBLE * torch.finfo(dtype).eps
        # Users with long histories first: then all pairs of a large lag are at the beginning.
        users = histories.indptr.diff().argsort(descending=True)
        self.counts = histories.indptr.diff()[users]
        self.ends = self.counts.cumsum(0)
        places = torch.arange(len(histories.items))
        self.after = self.ends.repeat_interleave(self.counts) - 1 - places  # later items
        moved = (histories.indptr[1:][users] - self.ends).repeat_interleave(self.counts)
        self.items = histories.items[places + moved]
        self.strengths = None if strengths is None else strengths[places + moved].to(dtype)
        self.numbers = features[self.items]
        # An item that is no feature pairs with nothing, at any lag.
        self.pairs_with = self.after.masked_fill(self.numbers < 0, -1)
        self.longest = int(self.counts.max())

    def by_lag(self, scales: Scales) -> Tensor:
        """(scales, features, n_items): sum over users and k < n of s_k e_{i_k}'."""
        lags = [scales.reach(p, self.negligible, self.longest) for p in range(len(scales.decays))]
        return self._weighted(
            [
                {lag: decay ** (lag - 1) for lag in range(1, most + 1)}
                for decay, most in zip(scales.decays, lags, strict=True)
            ]
        )

    def ahead(self, scales: Scales, states: Tensor) -> Tensor:
        """(scales, features, n_items): sum_t s_t y_t' from the sums `by_lag`.

        From the lag H on, all of H items to come follow: the weight is a multiple of d^(lag-1).
        """
        multiples, nearer = [], []
        for p, decay in enumerate(scales.decays):
            # So `states`, which is there already, times a number is right for all lags from H on;
            # only the lags below H are counted again, with the difference.
            multiple = scales.ahead(p, scales.horizon) / decay ** (scales.horizon - 1)
            lags = range(1, min(scales.horizon, self.longest))
            nearer.append(
                {lag: scales.ahead(p, lag) - multiple * decay ** (lag - 1) for lag in lags}
            )
            multiples.append(multiple)
        factors = torch.tensor(multiples, dtype=self.dtype)[:, None, None]
        return self._weighted(nearer).addcmul_(states, factors)

    def before_last(self, scales: Scales, p: int) -> Tensor:
        """(features, features): the part of `by_lag` that belongs to every user's last item."""
        taken = self.counts > 0
        last = torch.full((len(self.counts),), -1)
        last[taken] = self.numbers[self.ends[taken] - 1]
        users = (last >= 0).nonzero().squeeze(1)
        ones = np.ones(len(users))
        shape = (len(self.counts), self.width)
        final = csr_array((ones, (users.numpy(), last[users].numpy())), shape=shape)
        return self._product(self._states(scales, p), final)

    def together(self, scales: Scales, p: int, q: int, before: Tensor) -> Tensor:
        """(features, features): sum_t s_t^p s_t^q'."""
        both = scales.decays[p] * scales.decays[q]
        # The identity above divides by 1 - d_p d_q, which is 0 without decay.
        if both == 1:  # the weight of a pair is the number of prefixes that contain both
            half = self._counted_by_prefixes()
            return half + half.T
        # The right-hand side of the identity at the top of this file.
        block = scales.decays[p] * before[p] + scales.decays[q] * before[q].T
        block -= both * self._product(self._states(scales, p), self._states(scales, q))
        inner = self.numbers[(self.after > 0) & (self.numbers >= 0)]
        block.diagonal().add_(torch.bincount(inner, minlength=self.width))
        return block.div_(1 - both)

    def _weighted(self, weights: Sequence[Mapping[int, float]]) -> Tensor:
        """(scales, features, n_items) for each scale the sum of its weights, by lag, of pairs."""
        totals = torch.zeros(len(weights), self.width * self.n_items, dtype=self.dtype)
        # A cell of the (features, n_items) table as one number, for a scatter.
        rows = self.numbers * self.n_items
        for lag in range(1, max(max(by_lag, default=0) for by_lag in weights) + 1):
            first, second, kept = self._with_lag(lag)
            cells = (rows[first] + self.items[second])[kept]
            for total, by_lag in zip(totals, weights, strict=True):
                if weight := by_lag.get(lag):
                    added = total.new_full((len(cells),), weight)
                    if self.strengths is not None:
                        added *= self.strengths[second][kept]
                    total.scatter_add_(0, cells, added)
        return totals.view(len(weights), self.width, self.n_items)

    def _counted_by_prefixes(self) -> Tensor:
        """(features, features): half of the sum for no decay, where the first item is the earlier
        one; an item with itself belongs to both halves, with half of the weight in each."""
        total = torch.zeros(self.width * self.width, dtype=self.dtype)
        for lag in range(self.longest):
            first, second, kept = self._with_lag(lag)
            kept &= self.numbers[second] >= 0
            cells = (self.numbers[first] * self.width + self.numbers[second])[kept]
            prefixes = self.after[second][kept].to(self.dtype)
            total.scatter_add_(0, cells, prefixes.mul_(1.0 if lag else 0.5))
        return total.view(self.width, self.width)

    def _with_lag(self, lag: int) -> tuple[slice, slice, Tensor]:
        """The earlier and the later places of pairs, and which are pairs of a feature and an item
        of the same user."""
        # Only users with more than `lag` items have such pairs, and they come first. As slices, the
        # two places of all pairs need no index arrays.
        n = int(self.counts[self.counts > lag].sum())
        first, second = slice(0, max(0, n - lag)), slice(lag, max(lag, n))
        return first, second, self.pairs_with[first] >= lag

    def _states(self, scales: Scales, p: int) -> csr_array:
        """(n_users, features) s_{n-1}^p: all but every user's last item."""
        # Age of an item in the prefix without the last item.
        weights = scales.decays[p] ** (self.after - 1).double()
        kept = (self.after > 0) & (self.numbers >= 0) & (weights >= self.negligible)
        users = torch.arange(len(self.counts)).repeat_interleave(self.counts)[kept]
        entries = (users.numpy(), self.numbers[kept].numpy())
        shape = (len(self.counts), self.width)
        return csr_array((weights[kept].numpy(), entries), shape=shape)

    def _product(self, left: csr_array, right: csr_array) -> Tensor:
        return torch.from_numpy((left.T @ right).toarray()).to(self.dtype)


def _following(
    histories: UserItems, scales: Scales, dtype: torch.dtype, strengths: Tensor | None = None
) -> Tensor:
    """(n_items,) sum_t y_t: an item at place k follows the last min(k, H) prefixes before it."""
    counts = histories.indptr.diff()
    place = torch.arange(len(histories.items)) - histories.indptr[:-1].repeat_interleave(counts)
    powers = scales.future ** torch.arange(scales.horizon, dtype=dtype)
    sums = torch.cat([torch.zeros(1, dtype=dtype), powers.cumsum(0)])
    following = torch.zeros(histories.n_items, dtype=dtype)
    added = sums[place.clamp(max=scales.horizon)]
    if strengths is not None:
        added = added * strengths.to(dtype)
    return following.index_add_(0, histories.items, added)


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
    features: Annotated[int, Field(ge=1)] = 2048
    """Number of most frequent items that are read of a history; fewer in a large catalogue, whose
    solve would take minutes. All items are scored."""

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
    item that a user takes changes s_u alone. Only the most frequent items are features: all items
    are scored, but what a user took of rare ones says nothing about the user. With weights, an item
    to come counts in y_t by the strength of its row (`histories.py`): what is predicted is how much
    is taken next.
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
        histories = UserItems.from_log(split.train)
        most = most_features(histories.n_items, len(self.config.decays))
        features = frequent(histories, min(most, self.config.features))
        exact = len(self.config.decays) * (int(features.max()) + 1) <= EXACT_COLUMNS
        dtype = torch.float64 if exact else torch.float32
        given, scales = strengths_by_user(split.train), self.scales
        key = (scales, self.config.features)
        counts = self._once(
            key, lambda: LagCounts.from_histories(histories, scales, features, dtype, given)
        )
        solution = self._once((*key, self.config.l2), lambda: solved(counts, self.config.l2))
        # How often an item was a target; 1 for one that never was.
        frequency = counts.following.clamp(min=1) ** self.config.popularity
        self.features_, self.longest_ = features, longest_history(split)
        self.coefficients_ = rounded_to_half((solution / frequency).float().contiguous())

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
        # All scales at once: the columns of a scale follow those of the scale before.
        places, values = torch.cat(rows, dim=1), torch.cat(weights, dim=1).float()
        if places.shape[1] > len(self.coefficients_) // 8:  # not much fewer rows than all
            state = torch.zeros(len(queue), len(self.coefficients_), device=queue.device)
            return state.scatter_add_(1, places, values) @ self.coefficients_
        read = values > 0
        return embedding_bag(
            places[read],
            self.coefficients_,
            # Offsets of the bags: where each user's entries begin in the flat arrays.
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


def solved(counts: LagCounts, l2: float) -> Tensor:
    """(columns, n_items) B."""
    regularised = counts.gram.clone()
    regularised.diagonal().add_(l2)
    factor, failed = torch.linalg.cholesky_ex(regularised)
    if failed:
        raise ConfigError(f"ridge with l2={l2} has no solution (set a larger l2)")
    del regularised  # for a large catalogue each of these matrices takes gigabytes
    return torch.cholesky_solve(counts.target, factor)
