"""The sums of a regression from decayed histories to the decayed near future, by lags.

A user's items are i_0, i_1, ...; a prefix of t items that something follows has features and target

    s_t = [sum_j d_1^(t-1-j) e_{i_j} ; sum_j d_2^(t-1-j) e_{i_j} ; ...]   over j < t
    y_t = sum_{h<H} f^h e_{i_{t+h}}

The weight of a pair of items (one at place j, the other at k = j + lag) in sum_t s_t s_t' is

    d_p^lag (1 + d_p d_q + ... + (d_p d_q)^(r-1)),    r: the number of prefixes that contain both

and in sum_t s_t y_t' it depends on the lag alone. So the cost is interactions x lags, and nothing
is stored for a prefix.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fairhorizon.histories import UserItems

SMALLEST_WEIGHT = 0.02  # an item of a history that would weigh less is left out


@dataclass(frozen=True)
class Scales:
    """The weights of past and future items: d, H and f."""

    decays: tuple[float, ...]
    longest: int
    horizon: int
    future: float

    @cached_property
    def windows(self) -> tuple[int, ...]:
        """By each scale, the number of most recent items that count."""
        return tuple(_window(decay, self.longest) for decay in self.decays)

    def ahead(self, scale: int, lag: int) -> float:
        """The weight of a pair in sum_t s_t y_t': d^(lag-1-h) f^h, summed over the h < H for which
        the earlier item is one of those that count."""
        decay, window = self.decays[scale], self.windows[scale]
        places = range(max(0, lag - window), min(self.horizon, lag))
        return sum(decay ** (lag - 1 - h) * self.future**h for h in places)

    def together(self, p: int, q: int, dtype: torch.dtype) -> Tensor:
        """1 + x + ... + x^(r-1) for x = d_p d_q, by r."""
        powers = (self.decays[p] * self.decays[q]) ** torch.arange(self.longest, dtype=dtype)
        return torch.cat([torch.zeros(1, dtype=dtype), powers.cumsum(0)])


def _window(decay: float, longest: int) -> int:
    if decay == 1:
        return longest
    return min(longest, math.ceil(math.log(SMALLEST_WEIGHT) / math.log(decay)))


@dataclass(frozen=True)
class LagCounts:
    """The sums over all prefixes of all users. A column is a feature at one of the scales."""

    scales: Scales
    features: Tensor  # (n_items,) the number of an item among the features, -1 if it is none
    gram: Tensor  # sum_t s_t s_t', (columns, columns)
    target: Tensor  # sum_t s_t y_t', (columns, n_items)
    following: Tensor  # sum_t y_t, (n_items,)

    @classmethod
    def of(
        cls, histories: UserItems, scales: Scales, features: Tensor, dtype: torch.dtype
    ) -> "LagCounts":
        """The sums of a log, lag by lag."""
        n_items, width = histories.n_items, int(features.max()) + 1
        columns = len(scales.decays) * width
        items, numbers = histories.items, features[histories.items]
        after = histories.indptr[1:].repeat_interleave(histories.indptr.diff())
        after = after - 1 - torch.arange(len(items))  # number of items of the user after each
        half = torch.zeros(columns * columns, dtype=dtype)
        target = torch.zeros(columns * n_items, dtype=dtype)
        # in the order of the earlier item, so that each stretch of additions goes to one row
        rows = numbers.argsort(stable=True)[int((numbers < 0).sum()) :]
        for lag in range(max(scales.windows) + scales.horizon):
            rows = rows[after[rows] >= lag]
            first, second = numbers[rows], rows + lag
            _add_ahead(target, scales, lag, first * n_items + items[second], width * n_items)
            both = numbers[second] >= 0
            cells = first[both] * columns + numbers[second[both]]
            _add_together(half, scales, lag, cells, after[second[both]], width, columns)
        half = half.view(columns, columns)
        return cls(
            scales,
            features,
            gram=half + half.T,
            target=target.view(columns, n_items),
            following=_following(histories, scales, dtype),
        )

    def add(self, history: Tensor, item: int) -> None:
        """Count one more interaction in place: a user with this history takes an item.

        The whole history is a new prefix, and the item follows the last H prefixes.
        """
        for h in range(min(self.scales.horizon, len(history))):
            state, weight = self.state(history[: len(history) - h]), self.scales.future**h
            self.target[:, item] += weight * state
            self.following[item] += weight
            if h == 0:
                self.gram.addr_(state, state)

    def state(self, history: Tensor) -> Tensor:
        """(columns,) s of a history, oldest item first."""
        width = int(self.features.max()) + 1
        state = self.gram.new_zeros(len(self.scales.decays), width)
        numbers = self.features[history].flip(0)
        for row, decay, window in zip(state, self.scales.decays, self.scales.windows, strict=True):
            recent = numbers[:window]
            weights = decay ** torch.arange(len(recent), dtype=state.dtype)
            row.index_add_(0, recent[recent >= 0], weights[recent >= 0])
        return state.flatten()


def _add_ahead(target: Tensor, scales: Scales, lag: int, cells: Tensor, block: int) -> None:
    """Add the pairs of a lag to sum_t s_t y_t', a block of cells for each scale."""
    for p in range(len(scales.decays)):
        if weight := scales.ahead(p, lag):
            weights = torch.full((1,), weight, dtype=target.dtype).expand(len(cells))
            target[p * block : (p + 1) * block].index_add_(0, cells, weights)


def _add_together(
    half: Tensor,
    scales: Scales,
    lag: int,
    cells: Tensor,
    prefixes: Tensor,
    width: int,
    columns: int,
) -> None:
    """Add the pairs of a lag to the half of sum_t s_t s_t' where the first item is the earlier one.

    An item with itself (lag 0) belongs to both halves, with half of the weight in each.
    """
    shares = 1.0 if lag else 0.5
    for p in range(len(scales.decays)):
        for q in range(len(scales.decays)):
            most = min(scales.windows[p] - lag, scales.windows[q])
            if most > 0:
                sums = shares * scales.decays[p] ** lag * scales.together(p, q, half.dtype)
                place = p * width * columns + q * width
                half[place:].index_add_(0, cells, sums[prefixes.clamp(max=most)])


def _following(histories: UserItems, scales: Scales, dtype: torch.dtype) -> Tensor:
    """(n_items,) sum_t y_t: an item at place k follows the last min(k, H) prefixes before it."""
    counts = histories.indptr.diff()
    place = torch.arange(len(histories.items)) - histories.indptr[:-1].repeat_interleave(counts)
    powers = scales.future ** torch.arange(scales.horizon, dtype=dtype)
    sums = torch.cat([torch.zeros(1, dtype=dtype), powers.cumsum(0)])
    following = torch.zeros(histories.n_items, dtype=dtype)
    return following.index_add_(0, histories.items, sums[place.clamp(max=scales.horizon)])
