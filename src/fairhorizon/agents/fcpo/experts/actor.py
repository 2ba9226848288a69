"""An actor with a warm start: it weights the scores of rankers and prices the group of an item.

A row of W has a weight for each ranker and a price for G0:

    score_i = sum_e w_e z_e(s, i) - price 1[i in G0],    z_e: scores of ranker e, standardised

So an item that enters G0 is priced at once, without any learning, and a policy with the best
weights for each state is at least as good as the best fixed mixture of the rankers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fairhorizon.agents.fcpo.experts.panel import Panel
from fairhorizon.policy.actor import GaussianActor
from fairhorizon.policy.encoder import StateEncoder
from fairhorizon.policy.history import HistoryEncoder
from fairhorizon.policy.menus import SignalMenus, best_of_groups
from fairhorizon.rankers.ranker import Ranker

SCORES_AT_ONCE = 2**24


def standardised(scores: Tensor) -> Tensor:
    """Mean 0 and spread 1 over the items, a row each; equal scores are all 0."""
    centred = scores.float() - scores.float().mean(1, keepdim=True)
    spread = centred.square().mean(1, keepdim=True).sqrt()
    return centred / spread.where(spread > 0, 1.0)


class ExpertSignals:
    """Standardised scores of the rankers for a batch of users, and the present groups."""

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
        return _signal(ranker, users, queues).to(self.group.device)


def _signal(ranker: Ranker[Any], users: Tensor, queues: Tensor) -> Tensor:
    return standardised(ranker.scores(users.cpu(), queues.cpu()))


class ExpertActor(GaussianActor):
    """FCPO's actor over the signals of a panel; it begins with the panel's weights and no price."""

    def __init__(
        self,
        encoder: StateEncoder | HistoryEncoder,
        panel: Panel,
        *,
        history: int,
        list_length: int,
        hidden: tuple[int, int],
        initial_std: float,
        candidates: int,
        priced: bool = True,
    ) -> None:
        signals = len(panel.rankers) + 1
        super().__init__(
            encoder,
            list_length=list_length,
            hidden=hidden,
            initial_std=initial_std,
            signals=signals,
            priced=priced,
        )
        self.panel, self.history, self.candidates = panel, history, candidates
        self.signals = signals
        self.weigh(panel.weights)
        with torch.no_grad():
            # at first, the outputs should differ between states by no more than the noise
            self._head.weight.mul_(initial_std)

    @torch.no_grad()
    def weigh(self, weights: Sequence[float]) -> None:
        """Begin with these weights of the rankers, and no price."""
        means = torch.tensor([*weights, 0.0] * self.list_length)
        self._head.bias[: len(means)] = means.to(self._head.bias)

    @torch.no_grad()
    def settle_on(self, weights: Sequence[float]) -> None:
        """The same weights in every state, and no price."""
        self.weigh(weights)
        self._head.weight[: self.list_length * self.signals] = 0.0

    @torch.no_grad()
    def without_price(self) -> None:
        """Remove the price learned for one limit, where the price of another is computed."""
        last = torch.arange(1, self.list_length + 1) * self.signals - 1
        self._head.bias[last] = 0.0
        self._head.weight[last] = 0.0

    @property
    def _head(self) -> nn.Linear:
        head = self.body[-1]
        assert isinstance(head, nn.Linear)
        return head

    def remember(self, queues: Tensor) -> Tensor:
        """Rankers read long histories, the encoder only the last items."""
        return queues[:, -self.history :]

    def look(self, users: Tensor, queues: Tensor, sensitive: Tensor) -> ExpertSignals:
        return ExpertSignals(self.panel, users, queues, sensitive)

    @property
    def least_on_menu(self) -> float:
        return self.candidates

    @torch.no_grad()
    def menus(
        self,
        users: Tensor,
        queues: Tensor,
        blocked: Tensor,
        sensitive: Tensor,
        at_least: int = 0,
    ) -> SignalMenus:
        """The items that some ranker puts among the best of their group."""
        count = max(self.candidates, at_least)
        at_once = max(1, SCORES_AT_ONCE // len(sensitive))
        rows = zip(users.split(at_once), queues.split(at_once), blocked.split(at_once), strict=True)
        return SignalMenus.join([self._menus(*some, sensitive, count) for some in rows])

    def _menus(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor, count: int
    ) -> SignalMenus:
        values = [
            _signal(ranker, users, queues).to(sensitive.device) for ranker in self.panel.rankers
        ]
        items = best_of_groups(values, blocked, sensitive, count)
        at = items.clamp(min=0)
        group = sensitive[at].float() if self.priced else torch.zeros(at.shape).to(values[0])
        return SignalMenus(items, torch.stack([*(v.gather(1, at) for v in values), -group], dim=2))
