"""The training of FCPO: the paper's Algorithm 1, round after round, to be stopped and resumed."""

import copy
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.learner import Learner
from fairhorizon.fcpo.networks import (
    Actor,
    EmbeddedItems,
    HistoryEncoder,
    StateEncoder,
)
from fairhorizon.fcpo.rollouts import Trajectories, rollout, rollout_items, served_ndcg
from fairhorizon.fcpo.serving import (
    FEWEST_USERS,
    VALIDATION_LENGTH,
    ActorProbabilities,
    by_more_than_chance,
    gain_of_states,
)
from fairhorizon.fcpo.warm_start import NO_PRICE, start_from, where_unseen_begins
from fairhorizon.histories import UserItems
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.rankers.candidates import (
    ScoredCandidates,
    fit_temperature,
    weights_by_cross_entropy,
)
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.recommenders.interactive import listed_ndcg
from fairhorizon.recommenders.lists.features import (
    EnsembleItems,
    FeatureSource,
    Opening,
    liked_items,
    open_menus,
    some_users,
)
from fairhorizon.recommenders.lists.item_lists import ItemLists
from fairhorizon.recommenders.progress import RoundReport, StepDetails
from fairhorizon.simulation.dynamics import cost_limit
from fairhorizon.simulation.feedback import (
    Scenario,
    cuts_at,
    training_scenario,
    validation_scenario,
)


# ---- Which round serves, and whether its policy kept the limit -----------------------------------
@dataclass(frozen=True)
class BestRound:
    """The round whose policy serves, of a policy that is trained for one limit."""

    number: int
    share: float  # of the group in its training episodes
    limit: float  # on that share
    tolerance: float  # excess over the limit, as a share of it, that counts as kept
    keeps_limit: bool  # within the limit and its tolerance

    def __str__(self) -> str:
        return (
            f"round {self.number} serves, with {100 * self.share:.1f} % of the showings of the "
            f"group in training episodes ({self.allowed})"
        )

    @property
    def allowed(self) -> str:
        """The limit and what counts as keeping it, in words."""
        highest = min(1.0, self.limit * (1 + self.tolerance))
        return (
            f"limit {100 * self.limit:g} %; up to {100 * highest:.3g} % counts as kept, by "
            f"cost_tolerance {self.tolerance:g}"
        )

    @property
    def remark(self) -> str:
        """What has to be said of a policy that serves although it broke the limit; or nothing."""
        if self.keeps_limit:
            return ""
        return (
            "no evaluated round of the training kept the limit, so the last one serves: round "
            f"{self.number}, with {100 * self.share:.1f} % of the showings of the group "
            f"({self.allowed})"
        )


def best_round(reports: Sequence[RoundReport], config: FcpoConfig) -> BestRound | None:
    """The evaluated round that kept the limit and has the best NDCG, or else the last round.

    None where there were no rounds, and where any level is served: what the episodes of such a
    training cost says nothing about the lists.
    """
    if not reports or config.serves_any_level:
        return None
    tolerance, limit = config.cost_tolerance, config.limit_in_training
    kept = {
        report.round: (report.validation, -report.round)  # of equals, the first
        for report in reports
        if report.validation is not None and report.keeps_limit(tolerance)
    }
    number = max(kept, key=kept.__getitem__) if kept else reports[-1].round
    chosen = next(report for report in reports if report.round == number)
    return BestRound(
        number,
        share=chosen.cost / chosen.limit * limit,  # both are sums over an episode
        limit=limit,
        tolerance=tolerance,
        keeps_limit=chosen.keeps_limit(tolerance),
    )


# ---- Episodes and validation (lines 6-13), for each kind of policy -------------------------------
MOST_USERS = 8192  # with stored menus


class Episodes(Interface):
    """Lines 6-13 of Algorithm 1, and the validation."""

    def generate(self, generator: torch.Generator) -> Trajectories:
        """Episodes of some users, under the present actor."""

    def validate(self) -> float:
        """NDCG of the lists of the present actor, on the validation items."""


def scenario_of(
    items: UserItems, config: FcpoConfig, queue_length: int, generator: torch.Generator
) -> Scenario:
    """The states in which the episodes of a round begin."""
    if config.starts == "unseen":
        cuts = where_unseen_begins(items)
    elif config.starts == "anywhere":
        parts = torch.rand(items.n_users, generator=generator)
        cuts = cuts_at(items, config.history, parts)
    else:
        cuts = torch.full((items.n_users,), config.history)
    return training_scenario(items, queue_length, config.protocol, cuts)


@dataclass
class _Learning:
    """The actor, its settings and its data."""

    actor: Actor
    config: FcpoConfig
    items: UserItems  # training items
    validation: Scenario
    sensitive: Tensor
    seed: int

    def __post_init__(self) -> None:
        """Nothing more to prepare."""


class ProposalEpisodes(_Learning):
    """Episodes of a policy that samples W."""

    def generate(self, generator: torch.Generator) -> Trajectories:
        config, items = self.config, self.items
        users = torch.arange(items.n_users)
        parts = []
        for _ in range(config.episodes_per_user):
            if len(users) > config.users_per_round:
                drawn = torch.randperm(items.n_users, generator=generator)
                users = drawn[: config.users_per_round]
            length = self.validation.queue.shape[1]
            scenario = scenario_of(items, config, length, generator)
            parts.append(
                rollout(
                    self.actor,
                    scenario,
                    users,
                    self.sensitive,
                    steps=config.horizon,
                    generator=generator,
                )
            )
        return Trajectories.join(parts)

    def validate(self) -> float:
        return served_ndcg(
            self.actor,
            self.validation,
            self.sensitive,
            length=VALIDATION_LENGTH,
            generator=torch.Generator().manual_seed(self.seed),
        )


class MenuEpisodes(_Learning):
    """Episodes of a policy over items. Rankers are fixed, so first menus are scored once."""

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        length = self.validation.queue.shape[1]
        self.scenario = scenario_of(self.items, self.config, length, generator)
        self.opening = self._open(self.scenario, generator)
        self.at_validation = self._open(self.validation, generator)
        counts, rule = self.items.indptr.diff(), PlaceRule(self.config.limit_in_training)
        self.lists = ItemLists(ActorProbabilities(self.actor), self.sensitive, counts, rule, None)

    def generate(self, generator: torch.Generator) -> Trajectories:
        config = self.config
        parts = []
        for _ in range(config.episodes_per_user):
            drawn = torch.randperm(len(self.opening.users), generator=generator)
            parts.append(
                rollout_items(
                    self.actor,
                    self.scenario,
                    self.opening.of(drawn[: config.users_per_round]),
                    self.sensitive,
                    steps=config.horizon,
                    temperature=config.temperature,
                    attention=attention_of(config).to(self.sensitive.device),
                    generator=generator,
                )
            )
        return Trajectories.join(parts)

    def validate(self) -> float:
        users, menus = self.at_validation.users, self.at_validation.menus
        length = min(VALIDATION_LENGTH, len(self.sensitive))
        with torch.no_grad():
            lists = self.lists.from_menus(menus, users, self.validation.queue[users], length)
        return listed_ndcg(lists, users, self.validation)

    def liked(self) -> Tensor:
        """(users, C) bool: the items of the first menus that are liked in the episodes."""
        return liked_items(self.opening, self.scenario)

    def _open(self, scenario: Scenario, generator: torch.Generator) -> Opening:
        """The menus of at most MOST_USERS users who like anything."""
        users = some_users(scenario, MOST_USERS, generator)
        return open_menus(self.actor.items, scenario, users, self.sensitive)


# ---- Algorithm 1 ---------------------------------------------------------------------------------
Tensors = dict[str, Tensor]


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
        pretraining_rmse: float | None,
        panel: Ensemble | None = None,
    ) -> None:
        self.split, self.config, self.seed, self.sensitive = split, config, seed, sensitive
        self.pretraining_rmse, self.panel = pretraining_rmse, panel
        self.fingerprint = split.train.fingerprint()
        items = UserItems.of(split.train)
        length = queue_length(config, panel)
        validation = validation_scenario(split, length, config.protocol)
        self.can_validate = len(validation.positive.items) > 0
        slots = float(attention_of(config).sum())
        self.limit = cost_limit(config.limit_in_training, 1, config.gamma_c, config.horizon) * slots
        self.generator = torch.Generator().manual_seed(seed)
        # Line 3: random theta, omega and phi; line 4: an empty replay buffer.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.actor = build_actor(config, *vectors, panel).to(sensitive.device)
            self.learner = Learner(self.actor, config)
        kind = MenuEpisodes if config.policy == "softmax" else ProposalEpisodes
        self.episodes: Episodes = kind(self.actor, config, items, validation, sensitive, seed)
        self.reports: list[RoundReport] = []
        self.best: Tensors = {}
        self.best_validation = -1.0
        self.evaluations_since_best = 0
        self.no_rounds = ""  # why the first weights serve without any round, in words

    def weigh_rankers(self) -> None:
        """Begin with the weights that make what users liked later on most likely.

        Weights that were chosen on the log by the lists they give keep their ratios.
        """
        episodes = self.episodes
        if isinstance(episodes, MenuEpisodes) and isinstance(
            episodes.opening.menus, ScoredCandidates
        ):
            menus, liked = episodes.opening.menus, episodes.liked()
            if self.config.adapt and self.panel is not None:
                self.weigh(fit_temperature(self.panel.weights, menus, liked))
            else:
                self.weigh(weights_by_cross_entropy(menus, liked))

    def weigh(self, weights: Sequence[float]) -> None:
        """Begin with these weights of the rankers, one for each of the ensemble."""
        assert self.panel is not None
        self.panel = self.panel.weighed(weights)
        self.actor.begin_with([*weights, NO_PRICE])

    @torch.enable_grad()
    def look_for_gain(self) -> str:
        """Before the first round: why it need not be run, in words; empty if it is to be run.

        Weights that were chosen on the log by their lists serve unless a policy is better than they
        are by more than chance. Whether one can be is found out on the later part of the log, in
        a small part of the time that rounds take.
        """
        config, episodes = self.config, self.episodes
        chosen_on_log = config.adapt and self.panel is not None
        asked = chosen_on_log and not config.always_train
        if not asked or self.finished or self.reports or not isinstance(episodes, MenuEpisodes):
            return ""
        users = len(episodes.opening.users)
        if users < FEWEST_USERS:
            self.no_rounds = f"{users} users are too few to tell whether rounds of CPO add anything"
            return self.no_rounds
        length = min(VALIDATION_LENGTH, len(self.sensitive))
        gain = gain_of_states(
            self.actor,
            episodes.lists,
            episodes.opening,
            episodes.scenario,
            length=length,
            seed=self.seed,
        )
        if not by_more_than_chance(gain):
            error = gain.std() / len(gain) ** 0.5
            self.no_rounds = (
                f"weights that differ between states change NDCG@{length} of what came later in "
                f"training by {gain.mean():+.4f}, with a standard error of {error:.4f}"
            )
        return self.no_rounds

    @property
    def finished(self) -> bool:
        return bool(self.no_rounds) or (
            len(self.reports) >= self.config.rounds
            or self.evaluations_since_best >= self.config.patience
        )

    def extend(self, config: FcpoConfig) -> None:
        """Go on with other settings of how long to train; what is learned must stay the same."""
        free = ("rounds", "patience", "evaluate_every")
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

    def rounds(self) -> Generator[RoundReport]:
        """Train to the end; between two rounds everything may be saved or dropped."""
        while not self.finished:
            yield self.round()

    def round(self) -> RoundReport:
        """Lines 6-23 of Algorithm 1."""
        started = time.perf_counter()
        config = self.config
        if config.serves_any_level and not self.reports and self.can_validate:
            self._keep(self.episodes.validate())  # rounds have to be better than the warm start
        fresh = self.episodes.generate(self.generator)  # lines 6-13
        learned = self.learner.learn(fresh, torch.tensor([self.limit]), self.generator)
        update = learned.update
        number = len(self.reports) + 1
        evaluate = number % config.evaluate_every == 0 and self.can_validate
        report = RoundReport(
            round=number,
            reward=learned.reward,
            cost=float(learned.costs[0]),
            limit=self.limit,
            kl=update.kl,
            case=update.case.value,
            fraction=update.fraction,
            validation=self.episodes.validate() if evaluate else None,
            rounds=config.rounds,
            seconds=time.perf_counter() - started,
            details=StepDetails(
                update.q,
                update.r,
                update.s,
                update.trust_multiplier,
                update.cost_multipliers,
                update.attempts,
            ),
        )
        self.reports.append(report)
        self._keep_best(report)
        return report

    def state(self) -> "TrainingState":
        """Everything that has changed since the training began; not what it reuses of episodes."""
        return TrainingState(
            _copies(self.actor.named_parameters()),
            _copies(self.learner.critics.state_dict().items()),
            self.best,
            self.generator.get_state(),
            list(self.reports),
            self.best_validation,
            self.evaluations_since_best,
        )

    def restore(self, state: "TrainingState") -> None:
        """Go on from the state of another training that began alike."""
        self.actor.load_state_dict(state.actor, strict=False)
        self.learner.critics.load_state_dict(state.critics)
        self.best = state.best
        self.generator.set_state(state.generator)
        self.reports = list(state.reports)
        self.best_validation = state.best_validation
        self.evaluations_since_best = state.evaluations_since_best

    def _keep_best(self, report: RoundReport) -> None:
        if report.validation is None:
            return
        # where serving finds the price of any level, what a round spent does not matter
        good = self.config.serves_any_level or report.keeps_limit(self.config.cost_tolerance)
        if good and report.validation > self.best_validation:
            self._keep(report.validation)
        elif self.best:
            self.evaluations_since_best += 1

    def _keep(self, validation: float) -> None:
        self.best_validation, self.evaluations_since_best = validation, 0
        self.best = _copies(self.actor.named_parameters())

    def best_actor(self) -> Actor:
        """A copy of the actor with the best parameters so far."""
        actor = copy.deepcopy(self.actor)
        if self.best:
            actor.load_state_dict(self.best, strict=False)
        return actor


def _copies(parameters: Iterable[tuple[str, Tensor]]) -> Tensors:
    return {name: value.detach().clone().cpu() for name, value in parameters}


@dataclass(frozen=True)
class TrainingState:
    """A training between two rounds, apart from its data and settings."""

    actor: Tensors  # parameters
    critics: Tensors
    best: Tensors  # parameters of the actor that is best on validation; none: no round is
    generator: Tensor
    reports: list[RoundReport]
    best_validation: float
    evaluations_since_best: int


@dataclass(frozen=True)
class Trained:
    """A training and the rankers that its policy serves with."""

    training: Training
    panel: Ensemble | None
    finished: bool  # nothing is left to do


# ---- The actor before its training ---------------------------------------------------------------
GRU_LAYERS = 2  # of the encoder without a warm start


def queue_length(config: FcpoConfig, panel: Ensemble | None) -> int:
    """How much of a history the policy and its rankers look at."""
    return config.history if panel is None else max(config.history, panel.queue_length)


def build_actor(
    config: FcpoConfig, users: Tensor, items: Tensor, panel: Ensemble | None = None
) -> Actor:
    """The actor before its training, with the head of its policy and its view of the items."""
    encoder: StateEncoder | HistoryEncoder
    view: FeatureSource
    if panel is None:
        encoder = StateEncoder(users, items, config.gru_hidden, GRU_LAYERS)
        # the paper's W is a point among the embeddings, without a price of the group
        view = EmbeddedItems(encoder, priced=config.policy == "softmax")
    else:
        encoder = HistoryEncoder(users, items)
        view = EnsembleItems(panel, config.history, config.candidates)
    hidden, length = config.actor_hidden, config.list_length
    std = config.initial_std if config.policy == "gaussian" else None
    actor = Actor(encoder, view, list_length=length, hidden=hidden, initial_std=std)
    if panel is not None:
        start_from(actor, panel, config.initial_std)
    return actor.to(torch.float32)
