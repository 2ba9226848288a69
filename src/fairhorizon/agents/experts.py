"""An actor with a warm start: what it weighs are the scores of rankers, and the group of an item.

A row of W has a weight for each ranker and a price for G0:

    score_i = sum_e w_e z_e(s, i) - price 1[i in G0],    z_e: scores of ranker e, standardised

So an item that enters G0 is dearer at once, without any learning, and a policy that gives every
ranker the weight that suits the state is at least as good as the best mixture of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairhorizon.data import Split
from fairhorizon.policy import GaussianActor, StateEncoder
from fairhorizon.protocol import Protocol
from fairhorizon.rankers import RANKERS, Ranker
from fairhorizon.rankers.early_stopping import Validation
from fairhorizon.storage import below

SHARES = (0.05, 0.1, 0.2, 0.4, 0.8)  # of a further ranker against the first, to choose from
SCORES_AT_ONCE = 2**24
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Panel:
    """Fitted rankers and how much each counts to begin with."""

    rankers: tuple[Ranker[Any], ...]
    weights: tuple[float, ...]

    @classmethod
    def fit(
        cls,
        names: Sequence[str],
        split: Split,
        protocol: Protocol,
        seed: int,
        fitted: Mapping[str, Ranker[Any]],
    ) -> "Panel":
        """Fit what is not fitted yet; the validation items say how to weigh them."""
        rankers = tuple(fitted.get(name) or _fit(name, split, protocol, seed) for name in names)
        return cls(rankers, best_weights(rankers, split, protocol))

    def refitted(self, split: Split) -> "Panel":
        """The same rankers fitted anew, at the same weights."""
        rankers = (type(ranker)(ranker.config, seed=ranker.seed) for ranker in self.rankers)
        return Panel(tuple(ranker.fit(split) for ranker in rankers), self.weights)

    @property
    def queue_length(self) -> int:
        return max(1, *(ranker.queue_length for ranker in self.rankers))

    def tensors(self) -> Tensors:
        return {
            f"expert.{number}.{name}": value
            for number, ranker in enumerate(self.rankers)
            for name, value in ranker.tensors().items()
        }

    def description(self) -> dict[str, Any]:
        return {
            "rankers": [ranker.description() for ranker in self.rankers],
            "weights": list(self.weights),
        }

    @classmethod
    def from_parts(cls, tensors: Tensors, description: dict[str, Any]) -> "Panel":
        rankers = []
        for number, stored in enumerate(description["rankers"]):
            own = below(f"expert.{number}.", tensors)
            rankers.append(RANKERS[stored["method"]].from_parts(own, stored))
        return cls(tuple(rankers), tuple(description["weights"]))


def _fit(name: str, split: Split, protocol: Protocol, seed: int) -> Ranker[Any]:
    ranker_class = RANKERS[name]
    validates = "protocol" in ranker_class.config_class.model_fields
    config = ranker_class.config_class(**({"protocol": protocol} if validates else {}))
    return ranker_class(config, seed=seed).fit(split)


def standardised(scores: Tensor) -> Tensor:
    """Mean 0 and spread 1 over the items, a row each; equal scores are all 0."""
    centred = scores.float() - scores.float().mean(1, keepdim=True)
    spread = centred.square().mean(1, keepdim=True).sqrt()
    return centred / spread.where(spread > 0, 1.0)


def best_weights(
    rankers: Sequence[Ranker[Any]], split: Split, protocol: Protocol
) -> tuple[float, ...]:
    """The ranker that is best on the validation items counts 1; others join as they help."""
    queue_length = max(1, *(ranker.queue_length for ranker in rankers))
    validation = Validation(split, queue_length, protocol)

    def judge(weights: Sequence[float]) -> float:
        def mixed(users: Tensor, queue: Tensor) -> Tensor:
            parts = [
                weight * standardised(ranker.scores(users, queue))
                for ranker, weight in zip(rankers, weights, strict=True)
                if weight
            ]
            return torch.stack(parts).sum(0)

        return validation.ndcg(mixed)

    alone = [[float(e == number) for e in range(len(rankers))] for number in range(len(rankers))]
    scored = sorted(((judge(weights), weights) for weights in alone), reverse=True)
    best_value, best = scored[0]
    for _, weights in scored[1:]:
        number = weights.index(1.0)
        for share in SHARES:
            trial = [share if e == number else weight for e, weight in enumerate(best)]
            value = judge(trial)
            if value > best_value:
                best_value, best = value, trial
    return tuple(best)


class ExpertSignals:
    """Standardised scores of the rankers for a batch of users, and the groups of the moment."""

    def __init__(self, panel: Panel, users: Tensor, queues: Tensor, sensitive: Tensor) -> None:
        self.rankers = panel.rankers
        self.relabel(sensitive)
        at_once = max(1, SCORES_AT_ONCE // len(sensitive))
        chunks = list(zip(users.split(at_once), queues.split(at_once), strict=True))
        self.values = [  # each (b, n_items)
            torch.cat([self._scores(ranker, *chunk) for chunk in chunks]) for ranker in self.rankers
        ]

    def scores(self, weights: Tensor) -> Tensor:
        *shares, price = weights.split(1, dim=1)
        scores: Tensor = -price * self.group
        for share, values in zip(shares, self.values, strict=True):
            scores.addcmul_(share, values)
        return scores

    def refresh(self, rows: Tensor, users: Tensor, queues: Tensor) -> None:
        for ranker, values in zip(self.rankers, self.values, strict=True):
            values.index_copy_(0, rows, self._scores(ranker, users, queues))

    def relabel(self, sensitive: Tensor) -> None:
        self.group = sensitive.float()

    def _scores(self, ranker: Ranker[Any], users: Tensor, queues: Tensor) -> Tensor:
        return standardised(ranker.scores(users.cpu(), queues.cpu())).to(self.group.device)


class ExpertActor(GaussianActor):
    """FCPO's actor over the signals of a panel; it begins with the panel's weights and no price."""

    def __init__(
        self,
        encoder: StateEncoder,
        panel: Panel,
        *,
        history: int,
        list_length: int,
        hidden: tuple[int, int],
        initial_std: float,
    ) -> None:
        signals = len(panel.rankers) + 1
        super().__init__(
            encoder,
            list_length=list_length,
            hidden=hidden,
            initial_std=initial_std,
            signals=signals,
        )
        self.panel, self.history = panel, history
        head = self.body[-1]
        assert isinstance(head, nn.Linear)
        with torch.no_grad():
            head.bias[: list_length * signals] = torch.tensor([*panel.weights, 0.0] * list_length)
            # the first steps of learning should tell states apart by no more than the noise
            head.weight.mul_(initial_std)

    def remember(self, queues: Tensor) -> Tensor:
        """Rankers look far back, the encoder at the last items only."""
        return queues[:, -self.history :]

    def look(self, users: Tensor, queues: Tensor, sensitive: Tensor) -> ExpertSignals:
        return ExpertSignals(self.panel, users, queues, sensitive)
