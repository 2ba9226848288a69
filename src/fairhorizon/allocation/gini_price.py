"""Exposure spread over the catalogue: a price on crowded items keeps a limit on the Gini index."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.allocation.group_budget import (
    Candidates,
    Sides,
    Spent,
    allot,
    best_value_first,
    known,
    plain_gains,
)
from fairhorizon.metrics.fairness import gini
from fairhorizon.ranking import some_at_a_time

DEPTH = 10  # candidates per side, in lengths of a list, that a Gini limit considers
PARTS, MOST_PARTS = 32, 192  # of the users, who choose in turn
SWEEPS = 3  # over all parts at one price: enough for the lists to settle
SPREAD_USERS = 1024  # on whose values the standard deviation is estimated
TRIALS = 16  # of prices, at the most
FIRST_PRICE = 0.05  # on crowded items, in standard deviations of value
HIGH = 2.0  # above this price the search ends if a higher one does not help
CLOSE = 1e-3  # a Gini index this far below the limit is good enough
NARROW = 0.02  # relative distance of a sufficient and an insufficient price that ends the search


@dataclass(frozen=True)
class SpreadTrial:
    """The lists found at one price on crowded items."""

    lists: Tensor  # (b, L)
    price: float
    mu: float
    gini: float
    total: float  # sum of w v

    def merit(self, limit: float) -> tuple[bool, float]:
        """Orders trials: within the limit by the total, beyond it by the Gini index."""
        within = self.gini <= limit
        return within, self.total if within else -self.gini


class Spreading:
    """A price on crowded items moves users to other items of nearly the same value.

    Lists are chosen by value - mu * log(1 + showings in the lists of others). If all users chose at
    once, all would leave the same items for the same others, and return the next time. So the users
    choose in parts, one after the other, as in a congestion game, which settles. Each part keeps
    the limit of the group given what the others are shown.
    """

    def __init__(
        self,
        candidates: Candidates,
        sensitive: Tensor,
        share: float,
        weights: Tensor,
        columns: Tensor,
        settled: Spent,
    ) -> None:
        self.candidates, self.sensitive, self.share = candidates, sensitive, share
        self.settled = settled
        self.weights, self.columns = weights, columns  # (b, 2 L) of the candidates shown, or -1
        self.sides = self._deep_sides()
        sample = self.sides.values[:, :: max(1, len(columns) // SPREAD_USERS)]
        self.unit = float(sample[known(sample)].double().std(correction=0)) or 1.0
        # 32 bits: this and `sides` are as large as the candidates
        self.items = torch.stack(
            [candidates.items.gather(1, side.long()).int() for side in self.sides.columns]
        )  # (2, b, n)
        self.shown = candidates.items.gather(1, columns.clamp(min=0)).masked_fill(columns < 0, -1)
        self.counts = showings(self.shown, len(sensitive))
        self.sweeps = 0

    def within(self, limit: float, price: float) -> SpreadTrial:
        """The lists of the highest total that keep the limit; if none do, the most even ones."""
        best, mu = self._trial(0.0, price), FIRST_PRICE
        lower = low = (0.0, best.gini)  # prices and their Gini indices: two that are too low
        high: tuple[float, float] | None = None  # and one that is sufficient
        for _ in range(TRIALS):
            for _ in range(SWEEPS):
                trial = self._trial(mu, self._sweep(mu))
                best = max(best, trial, key=lambda trial: trial.merit(limit))
            if trial.gini <= limit:
                high = (mu, trial.gini)
            else:
                lower, low = low, (mu, trial.gini)
            close = limit - CLOSE < trial.gini <= limit
            narrow = high is not None and high[0] - low[0] < NARROW * high[0]
            hopeless = high is None and mu > HIGH and lower[1] - low[1] < CLOSE
            if close or narrow or hopeless:
                break
            mu = _next_price(lower, low, high, limit - CLOSE / 2)
        return best

    def _sweep(self, mu: float) -> float:
        """All users choose again; the mean price of a place for the group."""
        # The higher the price the fewer choose at once, and never the same users together again.
        parts = int(min(max(PARTS, PARTS * mu), MOST_PARTS)) + self.sweeps % SWEEPS
        parts = min(parts, len(self.shown))
        self.sweeps += 1
        return sum(self._choose(slice(part, None, parts), mu) for part in range(parts)) / parts

    def _choose(self, rows: slice, mu: float) -> float:
        """New lists for some users; the price of a place for the group."""
        self.counts -= showings(self.shown[rows], len(self.counts))
        others = Spent(
            self.settled.shown + int(self.counts.sum()),
            self.settled.of_group + int(self.counts[self.sensitive].sum()),
        )
        crowding = (mu * self.unit * self.counts.double().log1p()).to(self.sides.values)
        items = self.items[:, rows]
        net = self.sides.values[:, rows] - crowding[items]
        values, places = net.topk(len(self.weights), dim=2)
        sides = Sides(places, values)
        of_group, price = allot(sides, plain_gains(sides), self.share, others)
        columns = self.sides.columns[:, rows].gather(2, places)
        self.columns[rows] = sides.pick(columns, of_group).long()
        self.shown[rows] = sides.pick(items.gather(2, places), of_group).long()
        self.counts += showings(self.shown[rows], len(self.counts))
        return price

    def _trial(self, mu: float, price: float) -> SpreadTrial:
        values, lists = best_value_first(self.candidates, self.columns, len(self.weights))
        total = values.double().masked_fill(lists < 0, 0.0) @ self.weights
        return SpreadTrial(lists, price, mu, gini_of(self.counts), float(total.sum()))

    def _deep_sides(self) -> Sides:
        """The best candidates by what each adds to the present list of its user."""
        parts, most = [], DEPTH * len(self.weights)
        candidates = (self.candidates.items, self.candidates.values, self.columns)
        for items, values, columns in some_at_a_time(*candidates):
            some = Candidates(items, values)
            listed, _ = best_value_first(some, columns, len(self.weights))
            added = marginal_values(values.detach(), listed, self.weights)
            added = added.masked_fill(items < 0, -torch.inf)
            part = Sides.of(added, self.sensitive[items], most)
            parts.append(Sides(part.columns.int(), part.values))
        sides = Sides.join(parts)
        depth = max(len(self.weights), int(sides.n.max()))
        return Sides(sides.columns[..., :depth], sides.values[..., :depth])


def marginal_values(values: Tensor, listed: Tensor, weights: Tensor) -> Tensor:
    """(b, C) what items of these values add to lists of falling values (b, L), padded with -inf.

    Removing the item at place j moves all behind it up by one. So the part of a value that lies
    between those at places j and j + 1 counts w_j, and the part below all of them w_L.
    """
    filled, weights = known(listed), weights.to(values)
    last = listed.where(filled, torch.inf).amin(1, keepdim=True)
    last = last.where(last < torch.inf, 0.0)
    listed = listed.where(filled, last)  # the last one repeated: no gap, no weight
    gaps = (listed[:, :-1] - listed[:, 1:]) * weights[:-1]
    added = torch.cat([gaps, last * weights[-1]], dim=1).flip(1).cumsum(1).flip(1)  # (b, L)
    n = len(weights)
    above = n - torch.searchsorted(listed.flip(1).contiguous(), values.contiguous())  # 0..n
    next_below = above.clamp(max=n - 1)
    slope = weights[(above - 1).clamp(min=0)]
    return added.gather(1, next_below) + slope * (values - listed.gather(1, next_below))


def _next_price(
    lower: tuple[float, float],
    low: tuple[float, float],
    high: tuple[float, float] | None,
    aim: float,
) -> float:
    """Close to where the line through two prices and their Gini indices reaches the aim."""
    if high is not None:
        part = (low[1] - aim) / (low[1] - high[1])
        return low[0] + min(max(part, 0.1), 0.9) * (high[0] - low[0])
    fall = (lower[1] - low[1]) / (low[0] - lower[0])
    rise = (low[1] - aim) / fall if fall > 0 else torch.inf
    return min(max(low[0] + rise, 1.5 * low[0]), 8 * low[0])


def showings(lists: Tensor, n_items: int) -> Tensor:
    return torch.bincount(lists[lists >= 0], minlength=n_items)


def gini_of(counts: Tensor) -> float:
    return gini(counts.cpu().numpy())
