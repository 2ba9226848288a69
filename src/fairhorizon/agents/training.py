"""The training of FCPO: the paper's Algorithm 1, round after round, to be stopped and resumed."""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fairhorizon.agents.config import FcpoConfig
from fairhorizon.agents.experts import ExpertActor, Panel
from fairhorizon.agents.learner import Learner
from fairhorizon.agents.rollout import Trajectories, rollout, served_ndcg
from fairhorizon.data import Split
from fairhorizon.environment import (
    Scenario,
    cost_limit,
    random_cuts,
    training_scenario,
    validation_scenario,
)
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.policy import GaussianActor, StateEncoder

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class RoundReport:
    """What one round saw: means per trajectory, cost and limit discounted alike."""

    round: int
    reward: float
    cost: float
    limit: float
    kl: float
    case: str
    fraction: float  # of the CPO step that the line search let through
    validation: float | None  # NDCG, in rounds with an evaluation
    seconds: float = field(default=0.0, compare=False)

    def keeps_limit(self, tolerance: float) -> bool:
        return self.cost <= self.limit * (1 + tolerance)


class Training:
    """Everything that changes while FCPO learns, and the round that changes it."""

    def __init__(
        self,
        split: Split,
        config: FcpoConfig,
        *,
        vectors: tuple[Tensor, Tensor],
        sensitive: Tensor,
        seed: int,
        pretraining_rmse: float,
        panel: Panel | None = None,
    ) -> None:
        self.config, self.seed, self.sensitive = config, seed, sensitive
        self.pretraining_rmse = pretraining_rmse
        self.panel = panel
        self.fingerprint = split.train.fingerprint()
        self.items = UserItems.of(split.train)
        self.queue_length = panel.queue_length if panel else config.history
        self.validation = validation_scenario(split, self.queue_length, config.protocol)
        self.limit = cost_limit(
            config.alpha_prime, config.list_length, config.gamma_c, config.horizon
        )
        self.generator = torch.Generator().manual_seed(seed)
        # Line 3: random theta, omega and phi; line 4: an empty replay buffer.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.actor = build_actor(config, *vectors, panel).to(sensitive.device)
            self.learner = Learner(self.actor, config)
        self.reports: list[RoundReport] = []
        self.best: Tensors = {}
        self.best_validation = -1.0
        self.evaluations_since_best = 0

    @property
    def finished(self) -> bool:
        return (
            len(self.reports) >= self.config.rounds
            or self.evaluations_since_best >= self.config.patience
        )

    def extend(self, config: FcpoConfig) -> None:
        """Go on with other settings of how long to train; what is learned must stay the same."""
        free = ("rounds", "patience", "evaluate_every", "checkpoint_every")
        changed = {
            key
            for key in FcpoConfig.model_fields
            if getattr(config, key) != getattr(self.config, key)
        }
        if fixed := sorted(changed.difference(free)):
            raise ConfigError(
                f"a resumed training keeps its settings, {', '.join(fixed)} cannot change "
                f"(only {', '.join(free)} can)"
            )
        self.config = config

    def rounds(self) -> Iterator[RoundReport]:
        """Train to the end; between two rounds everything may be saved or dropped."""
        while not self.finished:
            yield self.round()

    def round(self) -> RoundReport:
        """Lines 6-23 of Algorithm 1."""
        started = time.perf_counter()
        config = self.config
        fresh = self._generate()  # lines 6-13
        lesson = self.learner.learn(fresh, torch.tensor([self.limit]), self.generator)
        update = lesson.update
        number = len(self.reports) + 1
        evaluate = number % config.evaluate_every == 0 and len(self.validation.positive.items) > 0
        report = RoundReport(
            round=number,
            reward=float(fresh.rewards.sum(1).mean()),
            cost=float(lesson.costs[0]),
            limit=self.limit,
            kl=update.kl,
            case=update.case.value,
            fraction=update.fraction,
            validation=self._validate() if evaluate else None,
            seconds=time.perf_counter() - started,
        )
        self.reports.append(report)
        self._keep_best(report)
        return report

    def _generate(self) -> Trajectories:
        config = self.config
        users = torch.arange(self.items.n_users)
        parts = []
        for _ in range(config.episodes_per_user):
            if len(users) > config.users_per_round:
                drawn = torch.randperm(self.items.n_users, generator=self.generator)
                users = drawn[: config.users_per_round]
            scenario = self._training_scenario()
            parts.append(
                rollout(
                    self.actor,
                    scenario,
                    users,
                    self.sensitive,
                    steps=config.horizon,
                    generator=self.generator,
                )
            )
        return Trajectories.join(parts)

    def _training_scenario(self) -> Scenario:
        config = self.config
        cuts = torch.full((self.items.n_users,), config.history)
        if config.starts == "anywhere":
            cuts = random_cuts(self.items, config.history, self.generator)
        return training_scenario(self.items, self.queue_length, config.protocol, cuts)

    def _validate(self) -> float:
        """NDCG of the lists that the sampled policy would hand out now, on the validation items."""
        return served_ndcg(
            self.actor,
            self.validation,
            self.sensitive,
            length=self.config.validation_length,
            generator=torch.Generator().manual_seed(self.seed),
        )

    def _keep_best(self, report: RoundReport) -> None:
        if report.validation is None:
            return
        good = report.keeps_limit(self.config.cost_tolerance)
        if good and report.validation > self.best_validation:
            self.best_validation, self.evaluations_since_best = report.validation, 0
            self.best = {name: p.detach().clone() for name, p in self.actor.named_parameters()}
        elif self.best:
            self.evaluations_since_best += 1

    def best_actor(self) -> GaussianActor:
        """A copy of the actor with the best parameters so far."""
        actor = copy.deepcopy(self.actor)
        if self.best:
            actor.load_state_dict(self.best, strict=False)
        return actor


def build_actor(
    config: FcpoConfig, users: Tensor, items: Tensor, panel: Panel | None = None
) -> GaussianActor:
    encoder = StateEncoder(users, items, config.gru_hidden, config.gru_layers)
    if panel is not None:
        return ExpertActor(
            encoder,
            panel,
            history=config.history,
            list_length=config.list_length,
            hidden=config.actor_hidden,
            initial_std=config.initial_std,
        )
    return GaussianActor(
        encoder,
        list_length=config.list_length,
        hidden=config.actor_hidden,
        initial_std=config.initial_std,
    )
