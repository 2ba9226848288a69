"""LIRD (Zhao et al. 2017, "Deep Reinforcement Learning for List-wise Recommendations").

A deterministic actor proposes K embeddings, a critic values state and list, and both are trained
by DDPG (Lillicrap et al. 2016). As in the comparison of the FCPO paper, the state is FCPO's.
"""

from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.histories import UserItems
from fairhorizon.lird.config import LirdConfig
from fairhorizon.lird.ddpg import Ddpg, ListActor, ListCritic, LoggedLists, Transitions
from fairhorizon.lird.server import LirdServer
from fairhorizon.policy.actor import Proposal
from fairhorizon.policy.encoder import StateEncoder
from fairhorizon.rankers.early_stopping import CUTOFF, train_until_stale
from fairhorizon.rankers.mf import Mf
from fairhorizon.recommenders.base import Abilities, Recommender
from fairhorizon.recommenders.served import Served
from fairhorizon.recommenders.tasks import FitTask, ServingPlan
from fairhorizon.recommenders.walk import serve, served_ndcg
from fairhorizon.settings import Settings
from fairhorizon.simulation.dynamics import advance
from fairhorizon.simulation.feedback import (
    Scenario,
    random_cuts,
    training_scenario,
    validation_scenario,
)
from fairhorizon.storage import load_model, save_model


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
    def abilities(self) -> Abilities:
        return Abilities()

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
            UserItems.of(split.train),
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

    def served(
        self,
        scenario: Scenario,
        *,
        length: int,
        feedback: bool = False,
        seed: int | None = None,  # noqa: ARG002  # nothing is drawn
    ) -> Served:
        lists = serve(
            self.actor_,
            scenario,
            self.sensitive_,
            length=length,
            generator=None,
            feedback=feedback,
        )
        return Served.of(lists)

    def _server(self, plan: ServingPlan) -> LirdServer:
        plan.check_list_length(self.method, self.config.list_length)

        def refit(split: Split) -> ListActor:
            return Lird(self.config, seed=self.seed).fit(split).actor_

        return LirdServer(self.actor_, self.queue_length, refit, plan.retraining())

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
            proposals = Proposal.of(self.ddpg.actor(users, state.queue)).sample(generator)
            lists = self.ddpg.actor.choose(proposals, state.blocked)
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
    items = UserItems.of(split.train)
    last = (items.indptr.diff() - 1).clamp(min=0)
    return training_scenario(items, config.history, config.protocol, last)
