"""The training of FCPO: the paper's Algorithm 1, round after round, to be stopped and resumed.

`Training.begin` fits the rankers or embeddings that a policy starts from, or `Training.resume`
loads a checkpoint; `run` trains round by round, and `conclude` makes the policy that serves.
"""

import copy
import os
import signal
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Self

import torch
from torch import Tensor

from fairhorizon.data.splits import LATER, Split
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.embeddings import UserVectors, fit_embeddings
from fairhorizon.fcpo.fitted import FittedPolicy
from fairhorizon.fcpo.learner import Learner
from fairhorizon.fcpo.networks import (
    NO_PRICE,
    Actor,
    build_actor,
    numbers_of_items,
    numbers_of_users,
    queue_length,
)
from fairhorizon.fcpo.rollouts import Trajectories, draws, rollout, rollout_items, served_ndcg
from fairhorizon.fcpo.serving import (
    FEWEST_USERS,
    VALIDATION_LENGTH,
    ActorProbabilities,
    better_weights,
    calibrate,
    exceeds_chance,
    gain_of_states,
    largest_gini_reduction,
)
from fairhorizon.fcpo.warm_start import fit_warm_start, of_part, restored_ensemble
from fairhorizon.histories import UserItems
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.rankers.candidates import (
    ScoredCandidates,
    fit_temperature,
)
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.recommenders.base import FitTask, Fitted, LogPart
from fairhorizon.recommenders.interactive import listed_ndcg
from fairhorizon.recommenders.lists.features import (
    EnsembleItems,
    initial_candidates,
    liked_items,
    some_users,
)
from fairhorizon.recommenders.lists.item_lists import NO_LIMIT, ItemLists
from fairhorizon.recommenders.progress import SILENT, Listener, RoundReport, StepDetails
from fairhorizon.simulation.dynamics import cost_limit
from fairhorizon.simulation.feedback import (
    Scenario,
    cuts_at,
    training_scenario,
    validation_scenario,
)
from fairhorizon.storage import below, load_model, save_model, understood

# ---- Episodes and validation (lines 6-13), for each kind of policy -------------------------------
MOST_USERS = 8192  # with stored candidates


def where_unseen_begins(histories: UserItems) -> Tensor:
    """(n_users,) how many of a user's training items come before the later part.

    The later part is the test items of `earlier_part`. In a log too short for any it is the last
    item, which rankers used for early stopping only.
    """
    counts = histories.indptr.diff()
    later = (counts // LATER).clamp(min=1)
    return torch.where(counts > 1, counts - later, counts)


def where_episodes_begin(
    items: UserItems, config: FcpoConfig, generator: torch.Generator
) -> Tensor:
    """(n_users,) how many of a user's training items come before the episodes of a round."""
    if config.starts == "unseen":
        return where_unseen_begins(items)
    if config.starts == "anywhere":
        return cuts_at(items, config.history, torch.rand(items.n_users, generator=generator))
    return torch.full((items.n_users,), config.history)


class GaussianEpisodes:
    """Episodes and validation of a policy that samples W."""

    def __init__(
        self,
        actor: Actor,
        config: FcpoConfig,
        items: UserItems,
        validation: Scenario,
        sensitive: Tensor,
        seed: int,
    ) -> None:
        self.actor, self.config, self.items = actor, config, items
        self.validation, self.sensitive, self.seed = validation, sensitive, seed
        self.users: UserVectors | None = None  # None: they are the same at any time
        if config.embeddings == "als":
            vectors = actor.encoder.item_vectors[:-1]
            self.users = UserVectors(items, vectors.cpu(), config.als_embeddings)

    def generate(self, generator: torch.Generator) -> Trajectories:
        """Episodes of some users, under the present actor.

        Vectors that are fitted to all that a user took would tell the policy what is rewarded, so
        until `finish` they are those of what was taken before the episode.
        """
        config, items = self.config, self.items
        users = torch.arange(items.n_users)
        cuts = where_episodes_begin(items, config, generator)
        length = self.validation.queue.shape[1]
        scenario = training_scenario(items, length, config.protocol, cuts)
        if self.users is not None:
            self.actor.encoder.user_vectors.copy_(self.users.before(cuts))
        parts = []
        for _ in range(config.episodes_per_user):
            if len(users) > config.users_per_round:
                # Other users in every pass over a round.
                drawn = torch.randperm(items.n_users, generator=generator)
                users = drawn[: config.users_per_round]
            parts.append(
                rollout(
                    self.actor,
                    scenario,
                    users,
                    self.sensitive,
                    steps=config.horizon,
                    generator=generator,
                    alternatives=config.alternatives,
                )
            )
        return Trajectories.join(parts)

    def finish(self) -> None:
        """End a round: users are known by all that they took, as when the policy serves."""
        if self.users is not None:
            self.actor.encoder.user_vectors.copy_(self.users.of_log)

    def validate(self) -> float:
        """NDCG of the lists of the present actor, on the validation items."""
        return served_ndcg(
            self.actor,
            self.validation,
            self.sensitive,
            length=VALIDATION_LENGTH,
            generator=draws(self.config, self.seed),
        )


class SoftmaxEpisodes:
    """Episodes and validation of a policy over items.

    Rankers are fixed, so the candidates that episodes begin with are scored once, of at most
    MOST_USERS users who like anything.
    """

    def __init__(
        self,
        actor: Actor,
        config: FcpoConfig,
        items: UserItems,
        validation: Scenario,
        sensitive: Tensor,
        seed: int,
    ) -> None:
        self.actor, self.config = actor, config
        self.validation, self.sensitive = validation, sensitive
        generator = torch.Generator().manual_seed(seed)
        cuts = where_episodes_begin(items, config, generator)
        length = validation.queue.shape[1]
        self.scenario = training_scenario(items, length, config.protocol, cuts)
        self.initial, self.at_validation = (
            initial_candidates(
                actor.items, scenario, some_users(scenario, MOST_USERS, generator), sensitive
            )
            for scenario in (self.scenario, validation)
        )
        rule = PlaceRule(config.limit_in_training)
        counts = items.indptr.diff()
        self.lists = ItemLists(ActorProbabilities(actor), sensitive, counts, rule, None)

    def generate(self, generator: torch.Generator) -> Trajectories:
        """Episodes of some users, under the present actor."""
        config = self.config
        parts = []
        for _ in range(config.episodes_per_user):
            drawn = torch.randperm(len(self.initial.users), generator=generator)
            parts.append(
                rollout_items(
                    self.actor,
                    self.scenario,
                    self.initial.take(drawn[: config.users_per_round]),
                    self.sensitive,
                    steps=config.horizon,
                    temperature=config.temperature,
                    attention=attention_of(config).to(self.sensitive.device),
                    generator=generator,
                )
            )
        return Trajectories.join(parts)

    def finish(self) -> None:
        """Rankers are the same at any time."""

    def validate(self) -> float:
        """NDCG of the lists of the present actor, on the validation items."""
        users, candidates = self.at_validation.users, self.at_validation.candidate_set
        length = min(VALIDATION_LENGTH, len(self.sensitive))
        with torch.no_grad():
            lists = self.lists.from_candidates(
                candidates, users, self.validation.queue[users], length
            )
        return listed_ndcg(lists, users, self.validation)

    def liked(self) -> Tensor:
        """(users, C) bool: which of the first candidates are liked in the episodes."""
        return liked_items(self.initial, self.scenario)


# ---- Algorithm 1 ---------------------------------------------------------------------------------
KIND = "fcpo-checkpoint"
CHECKPOINT = "checkpoint.safetensors"  # in the folder of a training
CHECKPOINT_EVERY = 10  # rounds


def _check_there(path: Path) -> None:
    if not path.exists():
        raise ModelError(f"{path}: there is no checkpoint (leave out --resume to start again)")


def started_with(path: Path) -> tuple[FcpoConfig, int]:
    """The settings and the seed of the training that a checkpoint holds."""
    _check_there(path)
    with understood(path):
        _, description = load_model(path, KIND)
        return FcpoConfig.from_file(description["config"]), int(description["seed"])


@contextmanager
def _patient_interrupt(wanted: bool) -> Iterator[threading.Event]:
    """The first Ctrl-C only asks to stop after the present round; a second one stops at once."""
    pressed = threading.Event()
    # Python sets signal handlers in the main thread only; without a checkpoint there would be
    # nothing to stop for.
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def ask(_number: int, _frame: FrameType | None) -> None:
        pressed.set()
        # Not print, which may be in the middle of a line of its own when the signal comes.
        os.write(2, b"\nstopping after this round; Ctrl-C again stops at once\n")
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, previous)


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
        ensemble: Ensemble | None = None,
    ) -> None:
        """vectors: (n_users, d) and (n_items, d), of what the encoder knows of users and items.

        sensitive: (n_items,) bool, the group, on the device to train on.
        ensemble: the rankers that the policy learns with; None: it is over embeddings.
        """
        self.split, self.config, self.seed, self.sensitive = split, config, seed, sensitive
        self.pretraining_rmse, self.ensemble = pretraining_rmse, ensemble
        # The rankers of the whole log, where they are fitted already.
        self.serving: Ensemble | None = None
        self.fitted: Fitted = {}
        self.listener: Listener = SILENT
        self.checkpoint: Path | None = None  # the file; None: nothing is kept
        self.stopped = False
        self.fingerprint = split.train.fingerprint()
        items = UserItems.from_log(split.train)
        length = queue_length(config, ensemble)
        validation = validation_scenario(split, length, config.protocol)
        self.can_validate = len(validation.positive.items) > 0
        # Equation 11, with the attention of the places in place of their number K.
        slots = float(attention_of(config).sum())
        self.limit = cost_limit(config.limit_in_training, 1, config.gamma_c, config.horizon) * slots
        self.generator = torch.Generator().manual_seed(seed)
        # Line 3: random theta, omega and phi; line 4: an empty replay buffer.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.actor = build_actor(config, *vectors, ensemble).to(sensitive.device)
            self.learner = Learner(self.actor, config)
        kind = SoftmaxEpisodes if config.policy == "softmax" else GaussianEpisodes
        self.episodes: GaussianEpisodes | SoftmaxEpisodes = kind(
            self.actor, config, items, validation, sensitive, seed
        )
        self.reports: list[RoundReport] = []
        self.best: Tensors = {}
        self.best_validation = -1.0
        self.evaluations_since_best = 0
        self.no_rounds = ""  # why the first weights serve without any round, in words

    def weigh_rankers(self) -> None:
        """Begin with weights that make what users liked later on most likely.

        The ratios of the weights were chosen by the lists that they give, and stay.
        """
        episodes = self.episodes
        if isinstance(episodes, SoftmaxEpisodes) and self.ensemble is not None:
            candidates = episodes.initial.candidate_set
            assert isinstance(candidates, ScoredCandidates)
            self.weigh(fit_temperature(self.ensemble.weights, candidates, episodes.liked()))

    def weigh(self, weights: Sequence[float]) -> None:
        """Begin with these weights of the rankers, one for each of the ensemble."""
        assert self.ensemble is not None
        self.ensemble = self.ensemble.weighed(weights)
        self.actor.start_with_weights([*weights, NO_PRICE])

    @torch.enable_grad()
    def look_for_gain(self) -> str:
        """Before the first round: why it need not be run, in words; empty if it is to be run.

        Weights that were chosen on the log by their lists serve unless a policy is better than they
        are by more than chance. Whether one can be is found out on the later part of the log, in
        a small part of the time that rounds take.
        """
        config, episodes = self.config, self.episodes
        chosen_on_log = config.adapt and self.ensemble is not None
        asked = chosen_on_log and not config.always_train
        if not asked or self.finished or self.reports or not isinstance(episodes, SoftmaxEpisodes):
            return ""
        users = len(episodes.initial.users)
        if users < FEWEST_USERS:
            self.no_rounds = f"{users} users are too few to tell whether rounds of CPO add anything"
            return self.no_rounds
        length = min(VALIDATION_LENGTH, len(self.sensitive))
        gain = gain_of_states(
            self.actor,
            episodes.lists,
            episodes.initial,
            episodes.scenario,
            length=length,
            seed=self.seed,
        )
        if not exceeds_chance(gain):
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
        # Anything else would make the resumed training another one than it began as.
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

    # ---- From the first round to the last --------------------------------------------------------
    @classmethod
    def begin(cls, task: FitTask, config: FcpoConfig, sensitive: Tensor, seed: int) -> Self:
        """A training before its first round, from rankers or else from pretrained embeddings.

        sensitive: (n_items,) bool, the group, on the device to train on.
        """
        split, listener = task.split, task.listener
        # No item is shown twice in an episode.
        if config.list_length * config.horizon > split.train.n_items:
            raise ConfigError(
                f"{config.horizon} lists of {config.list_length} need more than the "
                f"{split.train.n_items} items there are (set a smaller horizon or list_length)"
            )
        if not config.warm_start:
            # As in the paper: random weights over the embeddings of a factorisation.
            embeddings = fit_embeddings(split, config, seed, listener)
            training = cls(
                split,
                config,
                vectors=(embeddings.users, embeddings.items),
                sensitive=sensitive,
                seed=seed,
                pretraining_rmse=embeddings.rmse,
            )
            return training._of_task(task)
        start = fit_warm_start(split, config, seed, task.fitted, listener)
        taken = torch.from_numpy(split.train.item_counts())
        histories = torch.from_numpy(split.train.user_counts())
        training = cls(
            split,
            config,
            vectors=(numbers_of_users(histories), numbers_of_items(taken, sensitive)),
            sensitive=sensitive,
            seed=seed,
            pretraining_rmse=None,
            ensemble=start.learning,
        )
        training.weigh_rankers()
        training.serving = start.serving
        return training._of_task(task)

    @classmethod
    def resume(cls, task: FitTask, config: FcpoConfig, sensitive: Tensor, seed: int) -> Self:
        """The training of a checkpoint; only how long to train may differ from what it began as."""
        assert task.checkpoint is not None
        file = task.checkpoint / CHECKPOINT
        training = cls.load(file, task.split, sensitive.device)
        training.extend(config)
        if seed != training.seed:
            raise ConfigError(
                f"--seed {seed}: the checkpoint has seed {training.seed} (leave it out)"
            )
        if not torch.equal(training.sensitive, sensitive):
            raise ConfigError(
                f"{file}: was trained with other groups (give the same --group-column, "
                "--sensitive, --item-table and --set popular_share)"
            )
        return training._of_task(task)

    def _of_task(self, task: FitTask) -> Self:
        self.fitted, self.listener = task.fitted, task.listener
        self.checkpoint = None if task.checkpoint is None else task.checkpoint / CHECKPOINT
        return self

    def run(self) -> None:
        """Train to the end, or until Ctrl-C where there is a checkpoint to resume from."""
        with (
            _patient_interrupt(self.checkpoint is not None) as interrupted,
            closing(self.rounds()) as rounds,
        ):
            for report in rounds:
                if interrupted.is_set() or self.listener.stop:
                    self.stopped = True
                    break
                if self.checkpoint is not None and report.round % CHECKPOINT_EVERY == 0:
                    self.save(self.checkpoint)
        # Also after an interruption: what was trained so far can be resumed.
        if self.checkpoint is not None:
            self.save(self.checkpoint)

    def rounds(self) -> Generator[RoundReport]:
        """The rounds that are left, one at a time; none where they could add nothing.

        Between two rounds everything may be saved or dropped.
        """
        if why := self.look_for_gain():
            self.listener.stage(f"no rounds of CPO: {why} (always_train runs them anyway)")
        while not self.finished:
            report = self.round()
            self.listener.round(report)
            yield report

    def round(self) -> RoundReport:
        """Lines 6-23 of Algorithm 1."""
        started = time.perf_counter()
        config = self.config
        if config.serves_any_level and not self.reports and self.can_validate:
            # Rounds have to be better than the warm start, which is validated as round 0.
            self._keep(self.episodes.validate())
        fresh = self.episodes.generate(self.generator)  # lines 6-13
        learned = self.learner.learn(fresh, torch.tensor([self.limit]), self.generator)
        self.episodes.finish()
        if self.actor.is_gaussian:
            # After the update, whose trust region is about the policy that was sampled from.
            self.actor.scale_std(config.std_decay)
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

    def _keep_best(self, report: RoundReport) -> None:
        if report.validation is None:
            return
        # Where serving finds the price of any level, what a round spent does not matter.
        good = self.config.serves_any_level or report.keeps_limit(self.config.cost_tolerance)
        if good and report.validation > self.best_validation:
            self._keep(report.validation)
        # Patience begins with the first policy that could serve.
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

    def conclude(self) -> FittedPolicy:
        """The policy so far: the best on validation, else the present one.

        A training that is finished ends with rankers fitted on the whole log; one that was stopped
        keeps the rankers that it was trained with.
        """
        ensemble, finished = self.ensemble, self.finished
        if finished and self.config.refits_rankers and ensemble is not None:
            finished = not self.stopped
            try:
                ensemble = self._refitted(ensemble) if finished else ensemble
            except KeyboardInterrupt:
                if self.checkpoint is None:
                    raise
                finished = False
        policy = FittedPolicy(
            self.best_actor(),
            self.sensitive,
            torch.from_numpy(self.split.train.user_counts()),
            ensemble,
            None,
            list(self.reports),
            self.pretraining_rmse,
            self.fingerprint,
            validation=self.best_validation if self.best else None,
            finished=finished,
        )
        items = policy.actor.items
        if isinstance(items, EnsembleItems) and ensemble is not None:
            # The learned price was that of the training limit. Serving finds the price of its own
            # limit.
            policy.actor.items = replace(items, ensemble=ensemble)
            policy.actor.without_price()
        if self.config.policy == "softmax":
            self._prepare(policy)
        return policy

    def _refitted(self, ensemble: Ensemble) -> Ensemble:
        """The rankers, fitted on the whole training log."""
        if self.serving is not None:
            return self.serving.weighed(ensemble.weights)
        names = ", ".join(ranker.method for ranker in ensemble.rankers)
        self.listener.stage(f"{self.split.name}: fitting {names} on the whole training log")
        ready = of_part(self.fitted, LogPart.WHOLE)
        return ensemble.refitted(self.split, ready, self.listener.epoch)

    def _prepare(self, policy: FittedPolicy) -> None:
        """Settle on weights that hold for the rankers as they are now, and price the levels."""
        config, seed = self.config, self.seed
        length = queue_length(config, policy.ensemble)
        states = validation_scenario(self.split, length, config.protocol)
        if isinstance(policy.actor.items, EnsembleItems):
            first = policy.actor.items.ensemble.weights
            weights: tuple[float, ...] | None = first
            # Without rounds the weights are those that were chosen on the log, and there is nothing
            # to compare.
            if not self.no_rounds:
                weights = better_weights(policy.lists(config), states, config, first, seed)
            if weights is not None:
                policy.actor.fix_weights([*weights, NO_PRICE])
                policy.settled = True
        policy.spread_part = self._largest_gini_reduction(policy)
        policy.prices = calibrate(policy.lists(config), states, seed)

    def _largest_gini_reduction(self, policy: FittedPolicy) -> float:
        """The part of the way to the Gini index of `spread` that accuracy can afford.

        By what the rankers of the earlier part make of the later part.
        """
        config, episodes = self.config, self.episodes
        target = policy.gini_target(config)
        if target is None or not isinstance(episodes, SoftmaxEpisodes):
            return 1.0
        probabilities = ActorProbabilities(self.best_actor())
        return largest_gini_reduction(
            ItemLists(probabilities, self.sensitive, policy.histories, NO_LIMIT, None),
            target,
            episodes.initial,
            episodes.scenario,
            length=min(VALIDATION_LENGTH, len(self.sensitive)),
            limit=config.limit_in_training,
            cost=config.spread_cost,
        )

    # ---- Checkpoints: a training on disk, between two rounds -------------------------------------
    def save(self, path: Path) -> None:
        """Write a checkpoint; `load` continues from it bit for bit."""
        parts = {
            "actor": self.actor.state_dict(),  # with what is never trained: the embeddings
            "critics": self.learner.critics.state_dict(),
            "best": self.best,
            "buffer": self.learner.buffer.tensors(),
        }
        tensors = {
            f"{part}.{name}": value.detach()
            for part, some in parts.items()
            for name, value in some.items()
        }
        tensors |= {"sensitive": self.sensitive, "generator": self.generator.get_state()}
        description = {
            "config": self.config.model_dump(mode="json"),
            "seed": self.seed,
            "fingerprint": self.fingerprint,
            "pretraining_rmse": self.pretraining_rmse,
            "reports": [report.stored() | {"seconds": report.seconds} for report in self.reports],
            "best_validation": self.best_validation,
            "evaluations_since_best": self.evaluations_since_best,
            "ensemble": None if self.ensemble is None else self.ensemble.description(),
        }
        if self.ensemble is not None:
            tensors |= self.ensemble.tensors()
        save_model(path, KIND, tensors, description)

    @classmethod
    def load(cls, path: Path, split: Split, device: torch.device) -> Self:
        """The training that `save` wrote; refused on other data."""
        _check_there(path)
        with understood(path):
            tensors, description = load_model(path, KIND)
            if description["fingerprint"] != split.train.fingerprint():
                raise ModelError(
                    f"{path}: was trained on other data (resume with the same --data and split)"
                )
            own, stored = below("actor.", tensors), description["ensemble"]
            training = cls(
                split,
                FcpoConfig.from_file(description["config"]),
                vectors=(own["encoder.user_vectors"], own["encoder.item_vectors"][:-1]),
                sensitive=tensors["sensitive"].to(device),
                seed=description["seed"],
                pretraining_rmse=description["pretraining_rmse"],
                ensemble=None if stored is None else restored_ensemble(tensors, stored),
            )
            training.actor.load_state_dict(own)
            training.learner.critics.load_state_dict(below("critics.", tensors))
            training.learner.buffer.restore(below("buffer.", tensors), device)
            training.best = below("best.", tensors)
            training.generator.set_state(tensors["generator"])
            training.reports = [RoundReport(**report) for report in description["reports"]]
            training.best_validation = description["best_validation"]
            training.evaluations_since_best = description["evaluations_since_best"]
            return training


def _copies(parameters: Iterable[tuple[str, Tensor]]) -> Tensors:
    return {name: value.detach().clone().cpu() for name, value in parameters}
