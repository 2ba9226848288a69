"""The weights of rankers: those whose lists are the best, by more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.stack.later_part import LENGTH, LaterBlock, LaterPart, ideal
from fairhorizon.ranking import discount, standardised, top

CANDIDATES = 3 * LENGTH  # best items of every ranker, from which lists are made
STEPS = (0.1, 0.2, 0.4, 0.8)  # of a weight; the largest is 1
BY_CHANCE = 0.5  # standard errors of a difference, paired over users
MOST_ROUNDS = 20
CLOSED = -1e9  # the score of no item; finite, as it is multiplied by a weight


@dataclass(frozen=True)
class Shortlists:
    """The best items of every ranker, each with the standardised scores of all of them."""

    signals: Tensor  # (rankers, b, C), -1e9 where there is no item
    liked: Tensor  # (b, C) bool
    ideal: Tensor  # (b,)

    @classmethod
    def of_rankers(cls, rankers: Sequence[Ranker[Any]], part: LaterPart) -> "Shortlists":
        """Of all users of a later part, some at a time."""
        blocks = [
            cls.of([block.scores(ranker) for ranker in rankers], block) for block in part.blocks()
        ]
        return cls(
            torch.cat([block.signals for block in blocks], dim=1),
            torch.cat([block.liked for block in blocks]),
            torch.cat([block.ideal for block in blocks]),
        )

    @classmethod
    def of(cls, scores: Sequence[Tensor], part: LaterBlock) -> "Shortlists":
        """From the scores (b, n_items) of every ranker."""
        signals = [standardised(values) for values in scores]
        best = [top(values.masked_fill(part.blocked, -torch.inf), CANDIDATES) for values in signals]
        items = torch.cat([at.masked_fill(value == -torch.inf, -1) for value, at in best], dim=1)
        items = items.sort(dim=1).values
        closed = items < 0
        closed[:, 1:] |= items[:, 1:] == items[:, :-1]
        at = items.clamp(min=0)
        open_signals = torch.stack([values.gather(1, at) for values in signals])
        liked = part.liked.gather(1, at) & ~closed
        return cls(open_signals.masked_fill(closed, CLOSED), liked, ideal(part.liked))

    def ndcg(self, weights: Tensor) -> Tensor:
        """(b,) NDCG of lists by the weighted sum of the signals."""
        scores = torch.tensordot(weights, self.signals, dims=1)
        best = scores.topk(min(LENGTH, scores.shape[1]), dim=1).indices
        gains = discount(torch.arange(1, best.shape[1] + 1))
        return (self.liked.gather(1, best) * gains).sum(1) / self.ideal


def best_weights(shortlists: Sequence[Shortlists]) -> Tensor:
    """(rankers,) weights of at least 0, 1 for the largest.

    Uphill from the best ranker alone, one weight at a time. A weight changes only if that helps
    more than chance would, so a ranker that adds nothing has no weight, and the sum is no worse
    than its best ranker.
    """

    def measured(weights: Tensor) -> Tensor:
        return torch.cat([some.ndcg(weights) for some in shortlists])

    alone = [(unit, measured(unit)) for unit in torch.eye(len(shortlists[0].signals)).unbind()]
    best, value = max(alone, key=_mean)
    for _ in range(MOST_ROUNDS):
        trials = [(weights, measured(weights)) for weights in _neighbours(best)]
        if not trials:
            break
        weights, its_value = max(trials, key=_mean)
        gain = its_value - value
        if not gain.mean() > BY_CHANCE * gain.std() / len(gain) ** 0.5:
            break
        best, value = weights, its_value
    return best


def _mean(trial: tuple[Tensor, Tensor]) -> float:
    return float(trial[1].mean())


def _neighbours(weights: Tensor) -> list[Tensor]:
    """The weights with one of them changed, scaled so that the largest is 1."""
    found = []
    for number in range(len(weights)):
        for step in STEPS:
            for change in (step, -step):
                other = weights.clone()
                other[number] = max(0.0, float(other[number]) + change)
                if other.max() > 0 and not torch.equal(other, weights):
                    found.append(other / other.max())
    return [other for other in found if not torch.equal(other, weights)]
