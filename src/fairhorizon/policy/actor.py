"""The actor: a Gaussian over the K x d matrix W of proposed 'ideal' items."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairhorizon.policy.encoder import StateEncoder
from fairhorizon.policy.history import HistoryEncoder
from fairhorizon.policy.menus import CatalogueMenus, Menus
from fairhorizon.policy.signals import ItemVectors, Signals

_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Proposal:
    """A batch of diagonal Gaussians over W, flattened to K d numbers a row."""

    mean: Tensor  # (m, K d)
    log_std: Tensor  # (m, K d)

    @classmethod
    def of(cls, outputs: Tensor) -> "Proposal":
        mean, log_std = outputs.chunk(2, dim=1)
        return cls(mean, log_std)

    def __getitem__(self, rows: Tensor) -> "Proposal":
        return Proposal(self.mean[rows], self.log_std[rows])

    def sample(self, generator: torch.Generator) -> Tensor:
        noise = torch.randn(self.mean.shape, generator=generator).to(self.mean)
        return torch.addcmul(self.mean, noise, self.log_std.exp())

    def log_prob(self, sample: Tensor, rows: Tensor | None = None) -> Tensor:
        """Of each sample under its row; `rows` maps samples to rows if they differ."""
        mean, inverse = self.mean, torch.exp(-self.log_std)
        constant = self.log_std.sum(1) + 0.5 * _LOG_2PI * mean.shape[1]
        if rows is not None:
            mean, inverse, constant = (x.index_select(0, rows) for x in (mean, inverse, constant))
        return -0.5 * ((sample - mean) * inverse).square().sum(1) - constant

    def kl_from(self, old: "Proposal") -> Tensor:
        """KL(self || old), a row each."""
        inverse = torch.exp(-2 * old.log_std)
        spread = torch.exp(2 * self.log_std) * inverse
        shift = (self.mean - old.mean).square() * inverse
        return 0.5 * (spread + shift - 1 - 2 * (self.log_std - old.log_std)).sum(1)

    def fisher(self, weights: Tensor, tangent: Tensor) -> Tensor:
        """M v for M = diag(1/sigma², 2) in (mean, log sigma), each row with its weight."""
        d_mean, d_log_std = tangent.chunk(2, dim=1)
        scaled = torch.cat([d_mean * torch.exp(-2 * self.log_std), 2 * d_log_std], dim=1)
        return weights[:, None] * scaled


class GaussianActor(nn.Module):
    """Encoder and MLP: (users, queues) -> mean and log standard deviation of W.

    A row of W has as many numbers as an item has signals: here those of its embedding, and with
    `priced` one more for its group.
    """

    def __init__(
        self,
        encoder: StateEncoder | HistoryEncoder,
        *,
        list_length: int,
        hidden: tuple[int, int],
        initial_std: float,
        signals: int | None = None,
        priced: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.list_length, self.priced = list_length, priced
        width = list_length * (signals or encoder.item_vectors.shape[1] + priced)
        head = nn.Linear(hidden[1], 2 * width)
        self.body = nn.Sequential(
            nn.Linear(encoder.output_size, hidden[0]),
            nn.Tanh(),
            nn.Linear(hidden[0], hidden[1]),
            nn.Tanh(),
            head,
        )
        with torch.no_grad():  # start with every state alike: W ~ N(~0, initial_std²)
            head.weight.mul_(0.1)
            head.bias.zero_()
            head.bias[width:] = math.log(initial_std)

    def forward(self, users: Tensor, queues: Tensor) -> Tensor:
        """(m, 2 K d): means, then log standard deviations."""
        outputs: Tensor = self.body(self.encoder(users, queues))
        return outputs

    def remember(self, queues: Tensor) -> Tensor:
        """The part of the queues that the encoder reads: here all."""
        return queues

    def look(self, users: Tensor, queues: Tensor, sensitive: Tensor) -> Signals:  # noqa: ARG002
        """The signals of all items for these users in these states."""
        return self._vectors(sensitive)

    @property
    def least_on_menu(self) -> float:
        """The smallest number of items of either group on a menu, if there are as many."""
        return math.inf

    def menus(
        self,
        users: Tensor,  # noqa: ARG002  # an embedding is the same for all
        queues: Tensor,  # noqa: ARG002
        blocked: Tensor,
        sensitive: Tensor,
        at_least: int = 0,  # noqa: ARG002
    ) -> Menus:
        """The items that a policy may choose from in these states: here all but the blocked.

        At least `at_least` items of either group, if there are as many.
        """
        items = torch.arange(blocked.shape[1]).to(blocked.device).expand(blocked.shape)
        return CatalogueMenus(items.masked_fill(blocked, -1), self._vectors(sensitive).vectors)

    def _vectors(self, sensitive: Tensor) -> ItemVectors:
        return ItemVectors(self.encoder.item_vectors[:-1], sensitive if self.priced else None)

    def scores(self, proposals: Tensor, signals: Signals) -> Iterator[Tensor]:
        """Equation 14: (b, n_items) for every row of W in turn."""
        for row in proposals.view(len(proposals), self.list_length, -1).unbind(1):
            yield signals.scores(row)

    def choose(self, proposals: Tensor, blocked: Tensor, signals: Signals | None = None) -> Tensor:
        """Equation 15: item k is the best by row k among the items still allowed.

        Softmax is monotone: the argmax of the scores is that of P_k. -1 where nothing is left.
        """
        signals = signals or ItemVectors(self.encoder.item_vectors[:-1])
        lists: list[Tensor] = []
        for scores in self.scores(proposals, signals):
            if lists:
                blocked = blocked.scatter(1, lists[-1].clamp(min=0)[:, None], True)
            best, chosen = scores.masked_fill_(blocked, -torch.inf).max(dim=1)
            lists.append(torch.where(best > -torch.inf, chosen, -1))
        return torch.stack(lists, dim=1)
