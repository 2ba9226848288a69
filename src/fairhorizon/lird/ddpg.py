"""Deep deterministic policy gradients (Lillicrap et al. 2016) over lists of items."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from fairhorizon.histories import UserItems
from fairhorizon.policy.actor import Actor
from fairhorizon.policy.encoder import StateEncoder
from fairhorizon.policy.heads import GaussianHead
from fairhorizon.policy.views import EmbeddedItems


@dataclass(frozen=True)
class Transitions:
    """The replay memory: a row for each list that was shown."""

    users: Tensor  # (m,)
    queues: Tensor  # (m, N)
    lists: Tensor  # (m, K), -1 for an empty slot
    rewards: Tensor  # (m,)
    next_queues: Tensor  # (m, N)

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: Tensor) -> "Transitions":
        return Transitions(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence["Transitions"]) -> "Transitions":
        names = (field.name for field in fields(cls))
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


class ListActor(Actor):
    """Encoder and MLP: (users, queues) -> W, deterministic.

    FCPO's actor with a spread that is not learned: it is the exploration noise of training, the
    share `noise` of the size of W.
    """

    def __init__(
        self,
        encoder: StateEncoder,
        *,
        list_length: int,
        hidden: int,
        temperature: float,
        noise: float,
    ) -> None:
        items = EmbeddedItems(encoder)
        width = list_length * items.n_signals
        head = GaussianHead(hidden, width, initial_std=1.0)
        super().__init__(encoder, items, head, list_length=list_length, hidden=hidden)
        self.temperature, self.noise = temperature, noise
        self.body = nn.Sequential(
            nn.Linear(encoder.output_size, hidden), nn.Tanh(), nn.Linear(hidden, width)
        )

    def forward(self, users: Tensor, queues: Tensor) -> Tensor:
        """(m, 2 K d): proposals, then the logarithm of the noise."""
        proposals: Tensor = self.body(self.encoder(users, queues))
        size = proposals.square().mean(1, keepdim=True).sqrt()
        return torch.cat([proposals, (self.noise * size).log().expand_as(proposals)], dim=1)

    def expected(self, proposals: Tensor) -> Tensor:
        """(m, K d) softmax(W_k Vᵀ / temperature) V: the list, as a function with a gradient."""
        items = self.encoder.item_vectors[:-1]
        rows = proposals.view(len(proposals), self.list_length, -1)
        chances = torch.softmax(rows @ items.T / self.temperature, dim=2)  # (m, K, n_items)
        return (chances @ items).flatten(1)

    def embedded(self, lists: Tensor) -> Tensor:
        """(m, K d) embeddings of lists (m, K); an empty slot, -1, is the row of zeros."""
        return self.encoder.item_vectors[lists].flatten(1)


class ListCritic(nn.Module):
    """Q(s, list): an MLP on state, list and their product."""

    def __init__(self, state_size: int, list_size: int, hidden: int) -> None:
        super().__init__()
        self.of_state = nn.Linear(state_size, hidden)
        self.of_list = nn.Linear(list_size, hidden)
        self.body = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, states: Tensor, lists: Tensor) -> Tensor:
        """(m,) values of encoded states (m, size) with embedded lists (m, K d)."""
        s, a = self.of_state(states), self.of_list(lists)
        values: Tensor = self.body(torch.cat([s.tanh(), a.tanh(), s * a], dim=1))
        return values.squeeze(1)


class Ddpg:
    """Actor and critic, and slow copies of both that give the critic its targets.

    The state encoder is trained by the critic alone (Yarats et al. 2021): one encoding per update
    is used by both.
    """

    def __init__(
        self,
        actor: ListActor,
        critic: ListCritic,
        *,
        gamma: float,
        actor_rate: float,
        critic_rate: float,
        target_rate: float,
    ) -> None:
        self.actor, self.critic = actor, critic
        self.target_actor, self.target_critic = copy.deepcopy((actor, critic))
        self.gamma, self.target_rate = gamma, target_rate
        self.critic_parameters = [*actor.encoder.parameters(), *critic.parameters()]
        self.actor_parameters = list(actor.body.parameters())
        self.critic_optimiser = torch.optim.Adam(self.critic_parameters, lr=critic_rate)
        self.actor_optimiser = torch.optim.Adam(self.actor_parameters, lr=actor_rate)

    def update(self, batch: Transitions) -> None:
        """One step each of the critic, the actor and their target networks."""
        states = self.actor.encoder(batch.users, batch.queues)
        self.critic_optimiser.zero_grad()
        self.critic_loss(states, batch).backward(inputs=self.critic_parameters)
        self.critic_optimiser.step()
        self.actor_optimiser.zero_grad()
        self.actor_loss(states.detach()).backward(inputs=self.actor_parameters)
        self.actor_optimiser.step()
        soft_update(self.target_actor, self.actor, self.target_rate)
        soft_update(self.target_critic, self.critic, self.target_rate)

    @torch.no_grad()
    def targets(self, batch: Transitions) -> Tensor:
        """(m,) y = r + gamma Q'(s', mu'(s')) by the target networks."""
        states = self.target_actor.encoder(batch.users, batch.next_queues)
        lists = self.target_actor.expected(self.target_actor.body(states))
        later: Tensor = self.target_critic(states, lists)
        return batch.rewards + self.gamma * later

    def critic_loss(self, states: Tensor, batch: Transitions) -> Tensor:
        """Mean (y - Q(s, a))², where a is the embeddings of the items shown."""
        values: Tensor = self.critic(states, self.actor.embedded(batch.lists))
        return (self.targets(batch) - values).square().mean()

    def actor_loss(self, states: Tensor) -> Tensor:
        """-Q(s, mu(s)): its gradient is that of the deterministic policy."""
        values: Tensor = self.critic(states, self.actor.expected(self.actor.body(states)))
        return -values.mean()


@torch.no_grad()
def soft_update(target: nn.Module, source: nn.Module, rate: float) -> None:
    """theta' <- rate theta + (1 - rate) theta'."""
    for old, new in zip(target.parameters(), source.parameters(), strict=True):
        old.lerp_(new, rate)


class LoggedLists:
    """Lists of the log: K items that a user took in succession."""

    def __init__(self, items: UserItems, length: int) -> None:
        users = torch.arange(items.n_users).repeat_interleave(items.indptr.diff())
        steps = torch.arange(len(items.items))[:, None] + torch.arange(1, length + 1)
        inside = steps < items.indptr[1:][users][:, None]  # of the same user's log
        following = items.items[steps.clamp(max=len(items.items) - 1)]
        self.lists = torch.where(inside, following, -1)  # (n, K) what follows each place
        self.places = torch.argsort(items.items, stable=True)  # by item
        self.counts = torch.bincount(items.items, minlength=items.n_items + 1)
        self.first = self.counts.cumsum(0) - self.counts

    def after(self, items: Tensor, generator: torch.Generator) -> Tensor:
        """(m, K) what some user took after each of the items; after any item, where none did."""
        chance = torch.rand(len(items), generator=generator)
        place = self.first[items] + (chance * self.counts[items]).long()
        anywhere = (chance * len(self.places)).long()
        return self.lists[self.places[torch.where(self.counts[items] > 0, place, anywhere)]]
