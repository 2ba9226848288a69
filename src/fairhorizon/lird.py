"""LIRD (Zhao et al. 2017, "Deep Reinforcement Learning for List-wise Recommendations").

A deterministic actor proposes K embeddings, a critic values state and list, and both are trained
by DDPG (Lillicrap et al. 2016). As in the comparison of the FCPO paper, the state is FCPO's.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.networks import Actor, StateEncoder
from fairhorizon.fcpo.policies import Proposal
from fairhorizon.fcpo.rollouts import serve, served_ndcg
from fairhorizon.histories import UserItems
from fairhorizon.limits.counts import Exposure
from fairhorizon.rankers.mf import Mf, MfConfig
from fairhorizon.rankers.training import CUTOFF, train_until_stale
from fairhorizon.recommenders.base import (
    Capabilities,
    FitTask,
    RankedLists,
    Recommender,
    ServingPlan,
)
from fairhorizon.recommenders.online import Retraining
from fairhorizon.settings import Search, Settings
from fairhorizon.simulation.dynamics import Outcome, State, advance
from fairhorizon.simulation.feedback import (
    Scenario,
    random_cuts,
    training_scenario,
    validation_scenario,
)
from fairhorizon.storage import below, load_model, save_model
from fairhorizon.vocabulary import Protocol

# ---- Settings ------------------------------------------------------------------------------------
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0)]


class LirdConfig(Settings):
    """Settings of LIRD."""

    # ---- The MDP
    list_length: Positive = 1
    """Items of a list (K)."""
    horizon: Positive = 10
    """Steps of a training episode (T)."""
    history: Positive = 5
    """Number of a user's most recent items in the state (N)."""
    gamma: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Discount of the reward per step."""
    starts: Literal["first", "anywhere"] = "anywhere"
    """Where training episodes begin in a user's log: after the first items, or anywhere."""
    protocol: Protocol = Protocol.STANDARD
    """Which items training and validation may show; "paper" includes the history."""

    # ---- The networks
    pmf: MfConfig = MfConfig(target="interaction", dim=32)
    """Settings of the matrix factorisation whose vectors the state is made of."""
    gru_hidden: Positive = 64
    """Width of the GRU that encodes the history."""
    gru_layers: Positive = 1
    """Number of GRU layers."""
    actor_hidden: Positive = 128
    """Width of the actor's hidden layer."""
    critic_hidden: Positive = 128
    """Width of the critic's hidden layer."""
    temperature: Annotated[Rate, Search(0.1, 10, log=True)] = 1.0
    """Temperature of the softmax over items through which the actor is trained."""

    # ---- One round: an episode of some users, then updates from the replay memory
    rounds: Positive = 30
    """Largest number of training rounds."""
    users_per_round: Positive = 1024
    """Users with an episode in a round, drawn at random if there are more."""
    buffer_rounds: Positive = 20
    """Number of most recent rounds that the replay memory holds."""
    updates: Positive = 200
    """Gradient steps per round."""
    batch: Positive = 256
    """Transitions per gradient step, drawn from the replay memory."""
    actor_rate: Annotated[Rate, Search(0.0001, 0.01, log=True)] = 3e-3
    """Learning rate of the actor."""
    critic_rate: Annotated[Rate, Search(0.0001, 0.01, log=True)] = 3e-3
    """Learning rate of the critic."""
    target_rate: Annotated[float, Field(gt=0, le=1)] = 0.01
    """How far the target networks move towards the trained ones in a gradient step."""
    noise: Annotated[float, Field(ge=0)] = 0.3
    """Standard deviation of the exploration noise, relative to the size of the actor's output."""
    logged: Annotated[Share, Search(0, 1)] = 0.5
    """Share of the training lists that are taken from the log instead of the actor."""

    patience: Positive = 5
    """Rounds without a better validation NDCG before training stops."""


# ---- Deep deterministic policy gradients over lists of items -------------------------------------
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
        super().__init__(encoder, list_length=list_length, hidden=(hidden, hidden), initial_std=1.0)
        self.temperature, self.noise = temperature, noise
        width = list_length * self.items.n_features
        self.body = nn.Sequential(
            nn.Linear(encoder.output_size, hidden), nn.Tanh(), nn.Linear(hidden, width)
        )

    def forward(self, users: Tensor, queues: Tensor) -> Tensor:
        """(m, 2 K d): proposals, then the logarithm of the noise."""
        proposals: Tensor = self.body(self.encoder(users, queues))
        # Noise in proportion to W: its size is free, as only the order of the scores matters.
        size = proposals.square().mean(1, keepdim=True).sqrt()
        return torch.cat([proposals, (self.noise * size).log().expand_as(proposals)], dim=1)

    def expected(self, proposals: Tensor) -> Tensor:
        """(m, K d) softmax(W_k Vᵀ / temperature) V: the list, as a function with a gradient."""
        # An argmax has no gradient; the softmax-weighted mean of item vectors stands in for the
        # item.
        items = self.encoder.item_vectors[:-1]
        rows = proposals.view(len(proposals), self.list_length, -1)
        probabilities = torch.softmax(rows @ items.T / self.temperature, dim=2)  # (m, K, n_items)
        return (probabilities @ items).flatten(1)

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
        # One encoding for both losses. Only the critic's loss reaches the encoder: `inputs=` keeps
        # each backward pass to its own parameters, and the actor sees detached states.
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
        # A uniformly random occurrence of the item in the log, and what its user took next.
        chance = torch.rand(len(items), generator=generator)
        place = self.first[items] + (chance * self.counts[items]).long()
        anywhere = (chance * len(self.places)).long()
        return self.lists[self.places[torch.where(self.counts[items] > 0, place, anywhere)]]


# ---- In a long run: observes what users like, and may be retrained once a round ------------------
class OnlineLird:
    """Serves K items a step; a user is encoded again when the queue has changed."""

    def __init__(
        self,
        actor: ListActor,
        queue_length: int,
        refit: Callable[[Split], ListActor],
        retraining: Retraining | None = None,
    ) -> None:
        self.actor, self.queue_length = actor, queue_length
        self.refit, self.retraining = refit, retraining
        self._proposals: Tensor | None = None  # (b, K d) W of the users' present states

    @property
    def remarks(self) -> Sequence[str]:
        return ()

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:  # noqa: ARG002  # no groups
        if self._proposals is None:
            self._proposals = self._propose(state.users, state.queue)
        return self.actor.choose(self._proposals, state.blocked)

    @torch.no_grad()
    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        if self.retraining is not None:
            self.retraining.observe(lists, outcome)
        rows = outcome.reward.nonzero().squeeze(1)
        if self._proposals is not None and len(rows):
            fresh = self._propose(outcome.state.users[rows], outcome.state.queue[rows])
            self._proposals[rows] = fresh

    def update(self) -> None:
        """Retrain if a round is over; the caller's model is not changed."""
        if self.retraining is not None and self.retraining.due:
            self.actor = self.refit(self.retraining.extended())
            self._proposals = None

    def notes(self) -> dict[str, float]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        tensors = {} if self._proposals is None else {"proposals": self._proposals.clone()}
        if self.retraining is not None:
            weights = self.actor.state_dict()
            tensors |= {f"actor.{name}": value.clone() for name, value in weights.items()}
            kept = self.retraining.tensors()
            tensors |= {f"retraining.{name}": value for name, value in kept.items()}
        return tensors

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        """Stored proposals are used as they are: computed again, their last digits would differ."""
        known = tensors.get("proposals")
        self._proposals = None if known is None else known.to(state.users.device, copy=True)
        if self.retraining is not None:
            self.actor = copy.deepcopy(self.actor)
            self.actor.load_state_dict(below("actor.", tensors))
            self.retraining.restore(below("retraining.", tensors))

    def _propose(self, users: Tensor, queues: Tensor) -> Tensor:
        return Proposal.from_outputs(self.actor(users, queues)).mean.clone()


# ---- The recommender, and its training -----------------------------------------------------------
class Lird(Recommender):
    """LIRD, list-wise recommendation by deep reinforcement learning (Zhao et al. 2017).

    Each item of a list is the best by inner product with its proposal, without repeats.

    LIRD learns from a simulator made of logged sessions. Here too a share of the lists shown in
    training comes from the log: what some user took right after the user's last item.
    """

    kind = "lird"
    method = "lird"
    presets = MappingProxyType({"default": LirdConfig()})

    actor_: ListActor
    validation_: list[float]  # NDCG after each round

    def __init__(self, config: LirdConfig | None = None, *, seed: int = 0) -> None:
        self.config = config or LirdConfig()
        self.seed = seed

    @classmethod
    def configured(cls, config: Settings, seed: int) -> Self:
        assert isinstance(config, LirdConfig)
        return cls(config, seed=seed)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    @property
    def settings(self) -> LirdConfig:
        return self.config

    @property
    def queue_length(self) -> int:
        return self.config.history

    def _fit(self, task: FitTask) -> None:
        """Pretrain the embeddings, train with early stopping, keep the best round.

        An epoch of the listener is a round, with its validation NDCG@20.
        """
        config, split = self.config, task.split
        self.sensitive_ = torch.tensor(task.group)
        pmf = Mf(config.pmf, seed=self.seed).fit(split)
        training = LirdTraining(
            UserItems.from_log(split.train),
            config,
            vectors=(unit_size(pmf.user_vectors_), unit_size(pmf.item_vectors_)),
            sensitive=self.sensitive_,
            seed=self.seed,
        )
        scenario = held_out(split, config)
        self.validation_ = []

        def report(number: int, value: float) -> None:
            self.validation_.append(value)
            task.listener.epoch(number, value)

        self.actor_ = training.ddpg.actor
        best = train_until_stale(
            dict(self.actor_.named_parameters()),
            training.round,
            lambda: served_ndcg(
                self.actor_, scenario, self.sensitive_, length=CUTOFF, generator=None
            ),
            max_epochs=config.rounds,
            patience=config.patience,
            on_epoch=report,
        )
        self.actor_.load_state_dict(best, strict=False)
        self.fingerprint_ = split.train.fingerprint()

    def rank(
        self,
        scenario: Scenario,
        *,
        length: int,
        feedback: bool = False,
        seed: int | None = None,  # noqa: ARG002  # nothing is drawn
    ) -> RankedLists:
        lists = serve(
            self.actor_,
            scenario,
            self.sensitive_,
            length=length,
            generator=None,
            feedback=feedback,
        )
        return RankedLists.from_tensors(lists)

    def _online(self, plan: ServingPlan) -> OnlineLird:
        plan.check_list_length(self.method, self.config.list_length)

        def refit(split: Split) -> ListActor:
            return Lird(self.config, seed=self.seed).fit(split).actor_

        return OnlineLird(self.actor_, self.queue_length, refit, plan.retraining())

    def description(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "config": self.config.model_dump(mode="json"),
            "seed": self.seed,
            "fingerprint": self.fingerprint_,
            "validation": self.validation_,
        }

    def save(self, path: Path) -> None:
        tensors = {f"actor.{name}": value for name, value in self.actor_.state_dict().items()}
        save_model(path, self.kind, tensors | {"sensitive": self.sensitive_}, self.description())

    @classmethod
    def load(cls, path: Path) -> Self:
        tensors, description = load_model(path, cls.kind)
        model = cls(LirdConfig.from_file(description["config"]), seed=description["seed"])
        model.sensitive_ = tensors.pop("sensitive")
        weights = {name.removeprefix("actor."): value for name, value in tensors.items()}
        vectors = weights["encoder.user_vectors"], weights["encoder.item_vectors"][:-1]
        model.actor_ = build_actor(model.config, *vectors)
        model.actor_.load_state_dict(weights)
        model.validation_ = description["validation"]
        model.fingerprint_ = description["fingerprint"]
        return model


class LirdTraining:
    """The networks and the replay memory, and the round that changes them."""

    def __init__(
        self,
        items: UserItems,
        config: LirdConfig,
        *,
        vectors: tuple[Tensor, Tensor],
        sensitive: Tensor,
        seed: int,
    ) -> None:
        self.items, self.config, self.sensitive = items, config, sensitive
        self.generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            actor = build_actor(config, *vectors)
            width = config.list_length * vectors[1].shape[1]
            critic = ListCritic(actor.encoder.output_size, width, config.critic_hidden)
        self.ddpg = Ddpg(
            actor,
            critic,
            gamma=config.gamma,
            actor_rate=config.actor_rate,
            critic_rate=config.critic_rate,
            target_rate=config.target_rate,
        )
        self.logged = LoggedLists(items, config.list_length)
        self.memory: list[Transitions] = []  # of the most recent rounds

    def round(self) -> None:
        """Show lists, store the transitions, learn from the replay memory."""
        config = self.config
        # The oldest round drops out of the memory.
        self.memory = [*self.memory, self.play()][-config.buffer_rounds :]
        memory = Transitions.join(self.memory)
        for _ in range(config.updates):
            rows = torch.randint(len(memory), (config.batch,), generator=self.generator)
            self.ddpg.update(memory.take(rows))

    @torch.no_grad()
    def play(self) -> Transitions:
        """An episode of newly drawn users; some lists are logged ones, at random."""
        config, generator = self.config, self.generator
        users = torch.randperm(self.items.n_users, generator=generator)[: config.users_per_round]
        state, feedback = self._scenario().begin(users)
        steps = []
        for _ in range(config.horizon):
            proposals = Proposal.from_outputs(self.ddpg.actor(users, state.queue)).sample(generator)
            lists = self.ddpg.actor.choose(proposals, state.blocked)
            # A whole list is either logged or the actor's own.
            logged = torch.rand(len(users), 1, generator=generator) < config.logged
            lists = torch.where(logged, self.logged.after(state.queue[:, -1], generator), lists)
            outcome = advance(state, lists, feedback, self.sensitive)
            steps.append(
                Transitions(users, state.queue, lists, outcome.reward, outcome.state.queue)
            )
            state = outcome.state
        return Transitions.join(steps)

    def _scenario(self) -> Scenario:
        config = self.config
        cuts = None
        if config.starts == "anywhere":
            cuts = random_cuts(self.items, config.history, self.generator)
        return training_scenario(self.items, config.history, config.protocol, cuts)


def build_actor(config: LirdConfig, users: Tensor, items: Tensor) -> ListActor:
    encoder = StateEncoder(users, items, config.gru_hidden, config.gru_layers)
    return ListActor(
        encoder,
        list_length=config.list_length,
        hidden=config.actor_hidden,
        temperature=config.temperature,
        noise=config.noise,
    )


def unit_size(vectors: Tensor) -> Tensor:
    """Scaled to a mean length of one, so that the inputs of the critic have a known size."""
    length = vectors.norm(dim=1).mean()
    return vectors / length if length > 0 else vectors


def held_out(split: Split, config: LirdConfig) -> Scenario:
    """The validation items; if there are none, each user's last training item."""
    if len(split.validation):
        return validation_scenario(split, config.history, config.protocol)
    items = UserItems.from_log(split.train)
    last = (items.indptr.diff() - 1).clamp(min=0)
    return training_scenario(items, config.history, config.protocol, last)
