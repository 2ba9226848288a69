"""The actor: it proposes W, a K x d matrix of 'ideal' items, by one of two heads (heads.py)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairhorizon.policy.encoder import StateEncoder
from fairhorizon.policy.heads import GaussianHead, SoftmaxHead
from fairhorizon.policy.history import HistoryEncoder
from fairhorizon.policy.signals import ItemVectors, Signals
from fairhorizon.policy.views import EmbeddedItems, ItemView

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
        # drawn on the CPU, so that a seed gives the same numbers on every device
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


class Actor(nn.Module):
    """A proposal network: encoder and body, whose last layer, the head, says something of W.

    A row of W has as many numbers as an item has signals; item k of a list is chosen by row k. The
    first outputs of either head are W (its means, where it is Gaussian).
    """

    def __init__(
        self,
        encoder: StateEncoder | HistoryEncoder,
        items: ItemView,
        head: GaussianHead | SoftmaxHead,
        *,
        list_length: int,
        hidden: int,
    ) -> None:
        super().__init__()
        self.encoder, self.items, self.list_length = encoder, items, list_length
        self.body = nn.Sequential(
            nn.Linear(encoder.output_size, hidden),
            nn.Tanh(),
            nn.Linear(hidden, head.in_features),
            nn.Tanh(),
            head,
        )

    def forward(self, users: Tensor, queues: Tensor) -> Tensor:
        """The outputs of the head: (m, K signals), or twice as many of a Gaussian head."""
        outputs: Tensor = self.body(self.encoder(users, queues))
        return outputs

    @property
    def head(self) -> nn.Linear:
        head = self.body[-1]
        assert isinstance(head, nn.Linear)
        return head

    @torch.no_grad()
    def begin_with(self, row: Sequence[float]) -> None:
        """Every row of W is this one, but for what the head makes of a state."""
        rows = torch.tensor([*row] * self.list_length).to(self.head.bias)
        self.head.bias[: len(rows)] = rows

    @torch.no_grad()
    def settle_on(self, row: Sequence[float]) -> None:
        """Every row of W is this one in every state."""
        self.begin_with(row)
        self.head.weight[: self.list_length * len(row)] = 0.0

    @torch.no_grad()
    def without_price(self) -> None:
        """Remove the price learned for one limit, where the price of another is computed."""
        last = torch.arange(1, self.list_length + 1) * self.items.n_signals - 1
        self.head.bias[last] = 0.0
        self.head.weight[last] = 0.0

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


def gaussian_actor(
    encoder: StateEncoder | HistoryEncoder,
    items: ItemView | None = None,
    *,
    list_length: int,
    hidden: tuple[int, int],
    initial_std: float,
) -> Actor:
    """An actor whose W is sampled, at first nearly N(0, initial_std²) in every state.

    Items are seen by their embeddings, unless a view is given.
    """
    items = items or EmbeddedItems(encoder)
    head = GaussianHead(hidden[1], list_length * items.n_signals, initial_std)
    return Actor(encoder, items, head, list_length=list_length, hidden=hidden[0])


def softmax_actor(
    encoder: StateEncoder | HistoryEncoder,
    items: ItemView | None = None,
    *,
    list_length: int,
    hidden: tuple[int, int],
) -> Actor:
    """An actor of a policy over items, at first nearly indifferent in every state."""
    items = items or EmbeddedItems(encoder)
    head = SoftmaxHead(hidden[1], list_length * items.n_signals)
    return Actor(encoder, items, head, list_length=list_length, hidden=hidden[0])
