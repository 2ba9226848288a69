"""What a training leaves behind: the policy, what it serves with, and the file that keeps both."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.networks import Actor, numbers_of_items, numbers_of_users
from fairhorizon.fcpo.policies import rows_of
from fairhorizon.fcpo.serving import (
    VALIDATION_LENGTH,
    ActorProbabilities,
    PriceTable,
    better_weights,
    calibrate,
    largest_gini_reduction,
)
from fairhorizon.fcpo.training import (
    MenuEpisodes,
    Trained,
    Training,
    best_round,
    build_actor,
    queue_length,
)
from fairhorizon.fcpo.warm_start import NO_PRICE, restored_ensemble
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.lists.features import CandidateCache, EnsembleItems
from fairhorizon.recommenders.lists.item_lists import NO_LIMIT, GiniTarget, ItemLists, accurate
from fairhorizon.recommenders.progress import Listener, RoundReport
from fairhorizon.simulation.dynamics import State
from fairhorizon.simulation.feedback import validation_scenario
from fairhorizon.storage import below, load_model, save_model


@dataclass
class FittedPolicy:
    """A policy that is ready to serve, on the device it was trained on."""

    actor: Actor
    sensitive: Tensor  # (n_items,) bool, the group whose exposure is limited
    histories: Tensor  # (n_users,) how many training items each user has
    panel: Ensemble | None  # the rankers of a warm start
    prices: PriceTable | None  # of a softmax policy, for users who are served alone
    reports: list[RoundReport]
    pretraining_rmse: float | None  # of embeddings, where there is no warm start
    fingerprint: str  # of the training log
    spread_part: float = 1.0  # of the way to the Gini index that `spread` aims at
    settled: bool = False  # weights are the same in all states: no round made better ones
    candidate_cache: CandidateCache = field(default_factory=CandidateCache, compare=False)

    @classmethod
    def of(cls, trained: Trained) -> "FittedPolicy":
        """The policy of a training: the best on validation, else the present one."""
        training = trained.training
        policy = cls(
            training.best_actor(),
            training.sensitive,
            torch.from_numpy(training.split.train.user_counts()),
            trained.panel,
            None,
            list(training.reports),
            training.pretraining_rmse,
            training.fingerprint,
        )
        items = policy.actor.items
        if isinstance(items, EnsembleItems) and trained.panel is not None:
            policy.actor.items = replace(items, panel=trained.panel)
            policy.actor.without_price()
        if training.config.policy == "softmax":
            policy._prepare(trained)
        return policy

    def refitted(
        self, split: Split, config: FcpoConfig, group: NDArray[np.bool_], listener: Listener
    ) -> "FittedPolicy":
        """The policy over the same rankers fitted again; what was learned and chosen stays."""
        assert self.panel is not None
        sensitive = torch.from_numpy(group).to(default_device())
        names = ", ".join(ranker.method for ranker in self.panel.rankers)
        listener.stage(f"{split.name}: fitting {names} on the whole log")
        taken, histories = (
            torch.from_numpy(counts)
            for counts in (split.train.item_counts(), split.train.user_counts())
        )
        panel = self.panel.again(split, listener.epoch)
        vectors = numbers_of_users(histories), numbers_of_items(taken, sensitive)
        actor = build_actor(config, *vectors, panel).to(sensitive.device)
        actor.load_state_dict(dict(self.actor.named_parameters()), strict=False)
        return replace(
            self,
            actor=actor,
            sensitive=sensitive,
            histories=histories,
            panel=panel,
            fingerprint=split.train.fingerprint(),
        )

    @torch.no_grad()
    def weights(self, state: State) -> tuple[float, ...]:
        """The weight of each ranker of the ensemble for the one user in a state."""
        outputs = self.actor(state.users, self.actor.items.remember(state.queue))
        rows = rows_of(outputs, self.actor.list_length).mean(1)[0]
        return tuple(rows[: 0 if self.panel is None else len(self.panel.rankers)].tolist())

    def with_rankers(self, rankers: Sequence[Ranker[Any]], sensitive: Tensor) -> "FittedPolicy":
        """The same policy over other rankers."""
        items = self.actor.items
        assert isinstance(items, EnsembleItems)
        panel, actor = replace(items.panel, rankers=tuple(rankers)), copy.copy(self.actor)
        actor.items = replace(items, panel=panel)
        return replace(self, actor=actor, panel=panel, sensitive=sensitive)

    def price_table(self) -> PriceTable:
        """Prices by level, for users who are served alone."""
        if self.prices is None:
            raise ConfigError("a Gaussian policy serves no single requests (fit preset fast)")
        return self.prices

    def _prepare(self, trained: Trained) -> None:
        """Settle on weights that hold for the rankers as they are now, and price the levels."""
        config, split, seed = (getattr(trained.training, n) for n in ("config", "split", "seed"))
        states = validation_scenario(split, queue_length(config, self.panel), config.protocol)
        if isinstance(self.actor.items, EnsembleItems):
            first = self.actor.items.panel.weights
            weights: tuple[float, ...] | None = first
            if not trained.training.no_rounds:
                weights = better_weights(self.lists(config), states, config, first, seed)
            if weights is not None:
                self.actor.settle_on([*weights, NO_PRICE])
                self.settled = True
        self.spread_part = self._affordable(trained.training)
        self.prices = calibrate(self.lists(config), states, seed)

    def lists(self, config: FcpoConfig, rule: PlaceRule | None = None) -> ItemLists:
        """How it makes lists, with the spread of these settings; by default at their level."""
        return ItemLists(
            ActorProbabilities(self.actor),
            self.sensitive,
            self.histories,
            PlaceRule(config.alpha_prime) if rule is None else rule,
            self._evenness(config),
            candidate_cache=self.candidate_cache,
        )

    def _evenness(self, config: FcpoConfig) -> GiniTarget | None:
        if config.spread is None or self.panel is None or not self.spread_part:
            return None
        return GiniTarget(config.spread, accurate(self.panel.ndcg), self.spread_part)

    def _affordable(self, training: Training) -> float:
        """By what the rankers of the earlier part make of the later part."""
        config, episodes = training.config, training.episodes
        evenness = self._evenness(config)
        if evenness is None or not isinstance(episodes, MenuEpisodes):
            return 1.0
        lists = ItemLists(
            ActorProbabilities(training.best_actor()),
            self.sensitive,
            self.histories,
            NO_LIMIT,
            None,
        )
        return largest_gini_reduction(
            lists,
            evenness,
            episodes.opening,
            episodes.scenario,
            length=min(VALIDATION_LENGTH, len(self.sensitive)),
            limit=config.limit_in_training,
            cost=config.spread_cost,
        )

    def summary(self, config: FcpoConfig, validation: float | None) -> str:
        """What the training has led to, in one line."""
        text = f"{len(self.reports)} rounds"
        chosen = best_round(self.reports, config)
        if chosen is not None:
            text += f"; {chosen.remark or chosen}"
        elif self.reports:
            last, limit = self.reports[-1], config.limit_in_training
            share = last.cost / last.limit * limit  # both are sums over an episode
            text += (
                f"; in training episodes {100 * share:.1f} % of the showings were of the group "
                f"(limit {100 * limit:g} %)"
            )
        if self.settled and config.rounds and not self.reports:
            text += "; the weights of the rankers serve: training found nothing to add"
        elif self.settled and self.reports and config.adapt:
            text += "; the first weights serve, as no round was better by more than chance"
        elif validation is not None:
            text += f"; validation NDCG {validation:.4f}"
        if config.serves_any_level:
            text += f"; serves at most {100 * config.alpha_prime:g} %, or any share asked for"
        return text

    def save(self, path: Path, kind: str, description: dict[str, Any]) -> None:
        tensors = {f"actor.{name}": value for name, value in self.actor.state_dict().items()}
        if self.panel is not None:
            tensors |= self.panel.tensors()
        if self.prices is not None:
            tensors |= self.prices.tensors()
        tensors |= {"sensitive": self.sensitive, "histories": self.histories}
        save_model(path, kind, tensors, description)

    def description(self) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint,
            "pretraining_rmse": self.pretraining_rmse,
            "rounds": [report.stored() for report in self.reports],
            "panel": None if self.panel is None else self.panel.description(),
            "spread_part": self.spread_part,
            "settled": self.settled,
        }

    @classmethod
    def load(
        cls, path: Path, kind: str, device: torch.device
    ) -> tuple["FittedPolicy", FcpoConfig, int]:
        """The policy of a file, its settings and its seed."""
        tensors, description = load_model(path, kind)
        config = FcpoConfig.from_file(description["config"])
        weights, stored = below("actor.", tensors), description["panel"]
        panel = None if stored is None else restored_ensemble(tensors, stored)
        vectors = weights["encoder.user_vectors"], weights["encoder.item_vectors"][:-1]
        actor = build_actor(config, *vectors, panel).to(device)
        actor.load_state_dict(weights)
        policy = cls(
            actor,
            tensors["sensitive"].to(device),
            tensors["histories"],
            panel,
            PriceTable.from_tensors(tensors) if config.policy == "softmax" else None,
            [RoundReport(**report) for report in description["rounds"]],
            description["pretraining_rmse"],
            description["fingerprint"],
            description["spread_part"],
            description["settled"],
        )
        return policy, config, description["seed"]


def default_device() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
