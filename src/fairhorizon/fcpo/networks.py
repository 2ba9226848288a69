"""The networks of FCPO: state encoders, the actor with its two heads, and the critics.

The actor proposes W, a K x d matrix of "ideal" items (equation 12); item k of a list is the one
whose vector fits row k best (equations 14 and 15).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairhorizon.allocation.candidates import NEVER
from fairhorizon.allocation.limit_matrix import Counts, Flags
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.histories import ItemSets
from fairhorizon.lbfgs import minimise
from fairhorizon.rankers.candidates import CatalogueCandidates
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.recommenders.lists.features import (
    EnsembleItems,
    FeatureSource,
    Groups,
    ItemFeatures,
    Logits,
)


# ---- Encoders: the state s_t = [e_u; GRU(H_t)] over fixed embeddings (equation 12) ---------------
class StateEncoder(nn.Module):
    """Encodes (user, queue) pairs; the embeddings are given as arrays and never trained."""

    user_vectors: Tensor  # (n_users, d)
    item_vectors: Tensor  # (n_items + 1, d); the last row, zeros, stands for "no item"

    def __init__(
        self, user_vectors: Tensor, item_vectors: Tensor, hidden: int, layers: int
    ) -> None:
        super().__init__()
        dim = item_vectors.shape[1]
        padding = item_vectors.new_zeros(1, dim)
        self.register_buffer("user_vectors", user_vectors.contiguous())
        self.register_buffer("item_vectors", torch.cat([item_vectors, padding]))
        self.gru = nn.GRU(dim, hidden, layers, batch_first=True)
        self.output_size = user_vectors.shape[1] + hidden

    def forward(self, users: Tensor, queues: Tensor) -> Tensor:
        """(m, d + hidden) states of m users with queues (m, N)."""
        inputs = self._first_inputs(queues)
        outputs = self._layer(inputs, 0)
        for layer in range(1, self.gru.num_layers):
            weight, bias = self._weights("ih", layer)
            inputs = list(torch.stack(outputs) @ weight.T + bias)
            outputs = self._layer(inputs, layer)
        return torch.cat([self.user_vectors[users], outputs[-1]], dim=1)

    def _first_inputs(self, queues: Tensor) -> list[Tensor]:
        """N tensors (m, 3 hidden): what each position gives to the gates of the first layer."""
        weight, bias = self._weights("ih", 0)
        # Few positions, as of a single request: the catalogue need not be projected for them.
        if queues.numel() < len(self.item_vectors):
            return list(self.item_vectors[queues.T] @ weight.T + bias)
        # It depends on the item alone: project the catalogue once and look up, instead of
        # projecting every position of every queue.
        table = torch.addmm(bias, self.item_vectors, weight.T)  # (n_items + 1, 3 hidden)
        return list(nn.functional.embedding(queues.T, table))

    def _layer(self, inputs: list[Tensor], layer: int) -> list[Tensor]:
        """One GRU layer over the projected inputs of every position, as in torch.nn.GRU."""
        weight, bias = self._weights("hh", layer)
        state = inputs[0].new_zeros(len(inputs[0]), self.gru.hidden_size)
        outputs = []
        for projected in inputs:
            in_reset, in_update, in_new = projected.chunk(3, dim=1)
            reset, update, new = torch.addmm(bias, state, weight.T).chunk(3, dim=1)
            reset = torch.sigmoid(in_reset + reset)
            update = torch.sigmoid(in_update + update)
            new = torch.tanh(in_new + reset * new)
            state = new + update * (state - new)
            outputs.append(state)
        return outputs

    def _weights(self, kind: str, layer: int) -> tuple[Tensor, Tensor]:
        weight: Tensor = getattr(self.gru, f"weight_{kind}_l{layer}")
        bias: Tensor = getattr(self.gru, f"bias_{kind}_l{layer}")
        return weight, bias


# ---- A state in a few numbers: how many items a user took, how popular they were -----------------
class HistoryEncoder(nn.Module):
    """[numbers of the user; mean of the items' numbers over the queue], with nothing to learn.

    Rankers model the user's taste. A policy that weights them also needs to know how reliable they
    are; a few numbers are enough for that, without memorising users.
    """

    user_vectors: Tensor  # (n_users, numbers)
    item_vectors: Tensor  # (n_items + 1, numbers); the last row, zeros, stands for "no item"

    def __init__(self, user_vectors: Tensor, item_vectors: Tensor) -> None:
        super().__init__()
        padding = item_vectors.new_zeros(1, item_vectors.shape[1])
        self.register_buffer("user_vectors", user_vectors.contiguous())
        self.register_buffer("item_vectors", torch.cat([item_vectors, padding]))
        self.output_size = user_vectors.shape[1] + item_vectors.shape[1]

    def forward(self, users: Tensor, queues: Tensor) -> Tensor:
        """(m, numbers) states of m users with queues (m, N)."""
        # Padding adds a row of zeros to the sum, and does not count in the mean.
        known = (queues < len(self.item_vectors) - 1).sum(1, keepdim=True).clamp(min=1)
        summed = nn.functional.embedding_bag(queues, self.item_vectors, mode="sum")
        return torch.cat([self.user_vectors[users], summed / known], dim=1)


def numbers_of_users(histories: Tensor) -> Tensor:
    """(n_users, 1): the logarithm of each user's number of items (n_users,), standardised."""
    return _standardised(torch.log1p(histories.float()))[:, None]


def numbers_of_items(counts: Tensor, sensitive: Tensor) -> Tensor:
    """(n_items, 3): the group of each item, and its popularity in the first and second power."""
    popularity = _standardised(torch.log1p(counts.float())).to(sensitive.device)
    return torch.stack([sensitive.float(), popularity, popularity.square()], dim=1)


def _standardised(values: Tensor) -> Tensor:
    spread = values.std(correction=0)
    return (values - values.mean()) / spread.where(spread > 0, torch.ones_like(spread))


# ---- Items as an actor over embeddings sees them -------------------------------------------------
class ItemVectors:
    """The embeddings: the same for all users in any state, so that W_k points at an ideal item.

    With groups, an item has one more coordinate, -1 in G0: its weight in W_k is the price of
    showing a sensitive item.
    """

    def __init__(self, vectors: Tensor, sensitive: Tensor | None = None) -> None:
        self.vectors = vectors  # (n_items, d), or d + 1 with the groups
        self.priced = sensitive is not None
        if sensitive is not None:
            self.vectors = torch.cat([vectors, -sensitive.to(vectors)[:, None]], dim=1)

    def scores(self, weights: Tensor) -> Tensor:
        return weights @ self.vectors.T

    def refresh(self, rows: Tensor, users: Tensor, queues: Tensor) -> None:
        pass

    def relabel(self, sensitive: Tensor) -> None:
        if self.priced:
            self.vectors[:, -1] = -sensitive.to(self.vectors)

    def candidate_items(self, rows: Tensor, blocked: ItemSets, count: int) -> Tensor:  # noqa: ARG002
        """All that are not blocked: they are scored together anyway."""
        items = torch.arange(len(self.vectors)).to(rows).expand(len(rows), -1)
        return items.masked_fill(blocked.mask(rows), -1)

    def with_shown(self, items: Tensor, shown: Tensor) -> CatalogueCandidates:  # noqa: ARG002
        if not self.priced:
            return CatalogueCandidates(items, self.vectors)
        groups = self.vectors[:, -1].expand(items.shape).clone()
        return CatalogueCandidates(items, self.vectors[:, :-1], groups)


@dataclass(frozen=True)
class EmbeddedItems:
    """Items by the embeddings of an encoder, the same for all users; all are candidates."""

    encoder: StateEncoder | HistoryEncoder
    priced: bool = False

    @property
    def n_features(self) -> int:
        return self.encoder.item_vectors.shape[1] + self.priced

    @property
    def least_per_group(self) -> float:
        return math.inf

    def encoder_input(self, queues: Tensor) -> Tensor:
        return queues

    def features(self, users: Tensor, queues: Tensor, sensitive: Tensor) -> ItemVectors:  # noqa: ARG002
        return ItemVectors(self.encoder.item_vectors[:-1], sensitive if self.priced else None)

    def candidate_set(
        self,
        users: Tensor,
        queues: Tensor,
        blocked: Tensor,
        sensitive: Tensor,
        at_least: int = 0,  # noqa: ARG002
    ) -> CatalogueCandidates:
        items = torch.arange(blocked.shape[1]).to(blocked.device).expand(blocked.shape)
        vectors = self.features(users, queues, sensitive).vectors
        return CatalogueCandidates(items.masked_fill(blocked, -1), vectors)

    def all_candidates(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor
    ) -> CatalogueCandidates:
        return self.candidate_set(users, queues, blocked, sensitive)

    def logits(
        self,
        weights: Logits,
        users: Tensor,  # noqa: ARG002
        queues: Tensor,  # noqa: ARG002
        blocked: Flags,
        groups: Groups | None,  # noqa: ARG002
        at_least: int = 0,  # noqa: ARG002
    ) -> Iterator[tuple[Counts | None, Logits]]:
        vectors = self.encoder.item_vectors[:-1].cpu().numpy()
        # Groups have no weight here.
        for own, closed in zip(weights[:, : vectors.shape[1]], blocked, strict=True):
            logits = vectors @ own
            logits[closed] = NEVER
            yield None, logits


# ---- The head: what the last layer says of W, and so what is sampled -----------------------------
SMALL = 0.1  # times the usual first weights: every state begins nearly alike


@torch.no_grad()
def head_of(features: int, width: int, initial_std: float | None) -> nn.Linear:
    """The last layer of an actor, which begins nearly the same in every state.

    width: numbers of W.
    initial_std: of a Gaussian head, which says means and then log standard deviations of W: a W is
        sampled and shows the best items by it. None: a softmax head, which says W alone: items are
        sampled, from softmax(W . features / temperature).
    """
    # As many numbers are drawn for either head: under one seed, actors and critics of both
    # policies begin with the same numbers.
    head = nn.Linear(features, 2 * width)
    if initial_std is None:
        head.out_features = width
        head.weight = nn.Parameter(head.weight[:width].clone())
        head.bias = nn.Parameter(head.bias[:width].clone())
    head.weight.mul_(SMALL)
    head.bias.zero_()
    if initial_std is not None:
        head.bias[width:] = math.log(initial_std)
    return head


# ---- The actor -----------------------------------------------------------------------------------
class Actor(nn.Module):
    """A proposal network: encoder and body, whose last layer, the head, says something of W.

    A row of W has as many numbers as an item has features; item k of a list is chosen by row k. The
    first outputs of either head are W (its means, where it is Gaussian).
    """

    def __init__(
        self,
        encoder: StateEncoder | HistoryEncoder,
        items: FeatureSource | None = None,
        *,
        list_length: int,
        hidden: tuple[int, int],
        initial_std: float | None = None,
    ) -> None:
        """items: as the actor sees them; None: by the embeddings of the encoder.

        initial_std: of a policy that samples W, at first nearly N(0, initial_std²) in every state;
            None: of a policy over items, at first nearly indifferent in every state.
        """
        super().__init__()
        self.encoder, self.items = encoder, items or EmbeddedItems(encoder)
        self.list_length, self.is_gaussian = list_length, initial_std is not None
        head = head_of(hidden[1], list_length * self.items.n_features, initial_std)
        self.body = nn.Sequential(
            nn.Linear(encoder.output_size, hidden[0]),
            nn.Tanh(),
            nn.Linear(hidden[0], hidden[1]),
            nn.Tanh(),
            head,
        )

    def forward(self, users: Tensor, queues: Tensor) -> Tensor:
        """The outputs of the head: (m, K features), or twice as many of a Gaussian head."""
        outputs: Tensor = self.body(self.encoder(users, queues))
        return outputs

    @property
    def head(self) -> nn.Linear:
        head = self.body[-1]
        assert isinstance(head, nn.Linear)
        return head

    @torch.no_grad()
    def start_with_weights(self, row: Sequence[float]) -> None:
        """Every row of W is this one, but for what the head makes of a state."""
        rows = torch.tensor([*row] * self.list_length).to(self.head.bias)
        self.head.bias[: len(rows)] = rows

    @torch.no_grad()
    def fix_weights(self, row: Sequence[float]) -> None:
        """Every row of W is this one in every state."""
        self.start_with_weights(row)
        self.head.weight[: self.list_length * len(row)] = 0.0

    @torch.no_grad()
    def scale_std(self, factor: float) -> None:
        """Multiply the standard deviation of W, of a Gaussian head, in every state."""
        self.head.bias[self.head.out_features // 2 :] += math.log(factor)

    @torch.no_grad()
    def without_price(self) -> None:
        """Remove the price learned for one limit, where the price of another is computed."""
        last = torch.arange(1, self.list_length + 1) * self.items.n_features - 1
        self.head.bias[last] = 0.0
        self.head.weight[last] = 0.0

    def scores(self, proposals: Tensor, features: ItemFeatures) -> Iterator[Tensor]:
        """Equation 14: (b, n_items) for every row of W in turn."""
        for row in proposals.view(len(proposals), self.list_length, -1).unbind(1):
            yield features.scores(row)

    def choose(
        self, proposals: Tensor, blocked: Tensor, features: ItemFeatures | None = None
    ) -> Tensor:
        """Equation 15: item k is the best by row k among the items still allowed.

        Softmax is monotone: the argmax of the scores is that of P_k. -1 where nothing is left.
        """
        features = features or ItemVectors(self.encoder.item_vectors[:-1])
        lists: list[Tensor] = []
        for scores in self.scores(proposals, features):
            if lists:
                # No item twice in a list. A user with nothing left, -1, has everything blocked
                # already.
                blocked = blocked.scatter(1, lists[-1].clamp(min=0)[:, None], True)
            best, chosen = scores.masked_fill_(blocked, -torch.inf).max(dim=1)
            lists.append(torch.where(best > -torch.inf, chosen, -1))
        return torch.stack(lists, dim=1)


# ---- The actor before its training ---------------------------------------------------------------
GRU_LAYERS = 2  # of the encoder without a warm start
NO_PRICE = 0.0


def queue_length(config: FcpoConfig, ensemble: Ensemble | None) -> int:
    """How much of a history the policy and its rankers look at."""
    return config.history if ensemble is None else max(config.history, ensemble.queue_length)


def build_actor(
    config: FcpoConfig, users: Tensor, items: Tensor, ensemble: Ensemble | None = None
) -> Actor:
    """The actor before its training, with the head of its policy and its view of the items."""
    encoder: StateEncoder | HistoryEncoder
    view: FeatureSource
    if ensemble is None:
        encoder = StateEncoder(users, items, config.gru_hidden, GRU_LAYERS)
        # The paper's W is a point among the embeddings, without a price of the group.
        view = EmbeddedItems(encoder, priced=config.policy == "softmax")
    else:
        encoder = HistoryEncoder(users, items)
        view = EnsembleItems(ensemble, config.history, config.candidates)
    hidden, length = config.actor_hidden, config.list_length
    std = config.initial_std if config.policy == "gaussian" else None
    actor = Actor(encoder, view, list_length=length, hidden=hidden, initial_std=std)
    if ensemble is not None:
        start_from(actor, ensemble, config.initial_std)
    return actor.to(torch.float32)


def start_from(actor: Actor, ensemble: Ensemble, initial_std: float) -> None:
    """Begin with the weights of the ensemble and no price."""
    actor.start_with_weights([*ensemble.weights, NO_PRICE])
    with torch.no_grad():
        # At first the outputs should differ between states by no more than the noise.
        actor.head.weight.mul_(initial_std)


# ---- Critics V_omega (reward) and V_phi (cost): equations 16 and 17 ------------------------------
class Critic(nn.Module):
    """The value of an encoded state, as a mean per step still to come.

    Episodes are finite, so a value depends on the steps left. The network predicts v(s), the mean
    per remaining (discounted) step; the value at step t of T is v(s) sum_{j < T-t} gamma^j, zero
    at the end of the horizon by construction.
    """

    def __init__(self, state_size: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(state_size, hidden[0]),
            nn.Tanh(),
            nn.Linear(hidden[0], hidden[1]),
            nn.Tanh(),
            nn.Linear(hidden[1], 1),
        )

    def forward(self, states: Tensor) -> Tensor:
        """(m,) mean value per remaining step."""
        values: Tensor = self.body(states)
        return values.squeeze(1)

    def fit(
        self,
        states: Tensor,
        index: Tensor,
        targets: Tensor,
        remaining: Tensor,
        iterations: int,
    ) -> float:
        """Minimise the mean of (y_t - V(s_t))² by L-BFGS; the loss after it.

        states: (m, size) distinct states; index: (b, T) which of them each step is in;
        targets y: (b, T); remaining: (T,) discounted steps still to come.
        """
        before = [parameter.detach().clone() for parameter in self.parameters()]

        def loss() -> Tensor:
            values: Tensor = self(states)[index] * remaining
            return (targets - values).square().sum() / index.numel()

        minimise(self.parameters(), loss, iterations=iterations)
        with torch.no_grad():
            final = float(loss())
            # `not <` catches NaN as well.
            if not final < float("inf"):  # a diverged fit is worse than none
                for parameter, old in zip(self.parameters(), before, strict=True):
                    parameter.copy_(old)
        return final
