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
from fairhorizon.fcpo.networks import Actor, build_actor, numbers_of_items, numbers_of_users
from fairhorizon.fcpo.policies import rows_of
from fairhorizon.fcpo.serving import ActorProbabilities, PriceTable
from fairhorizon.fcpo.warm_start import restored_ensemble
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.lists.features import CandidateCache, EnsembleItems
from fairhorizon.recommenders.lists.item_lists import GiniTarget, ItemLists, accurate
from fairhorizon.recommenders.progress import Listener, RoundReport
from fairhorizon.simulation.dynamics import State
from fairhorizon.storage import below, load_model, save_model


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
    # Only rounds that kept the limit may serve; of these the one with the best validation.
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


# ---- The policy ----------------------------------------------------------------------------------
@dataclass
class FittedPolicy:
    """A policy that is ready to serve, on the device it was trained on."""

    actor: Actor
    sensitive: Tensor  # (n_items,) bool, the group whose exposure is limited
    histories: Tensor  # (n_users,) how many training items each user has
    ensemble: Ensemble | None  # the rankers of a warm start
    prices: PriceTable | None  # of a softmax policy, for users who are served alone
    reports: list[RoundReport]
    pretraining_rmse: float | None  # of embeddings, where there is no warm start
    fingerprint: str  # of the training log
    spread_part: float = 1.0  # of the way to the Gini index that `spread` aims at
    validation: float | None = None  # NDCG of the policy in training; not kept in files
    finished: bool = True  # False: the training was stopped, and can be resumed
    settled: bool = False  # weights are the same in all states: no round made better ones
    candidate_cache: CandidateCache = field(default_factory=CandidateCache, compare=False)

    def refitted(
        self, split: Split, config: FcpoConfig, group: NDArray[np.bool_], listener: Listener
    ) -> "FittedPolicy":
        """The policy over the same rankers fitted again; what was learned and chosen stays."""
        assert self.ensemble is not None
        sensitive = torch.from_numpy(group).to(default_device())
        names = ", ".join(ranker.method for ranker in self.ensemble.rankers)
        listener.stage(f"{split.name}: fitting {names} on the whole log")
        taken, histories = (
            torch.from_numpy(counts)
            for counts in (split.train.item_counts(), split.train.user_counts())
        )
        ensemble = self.ensemble.again(split, listener.epoch)
        # The states' numbers, such as popularity, follow the new log; the trained weights are kept.
        vectors = numbers_of_users(histories), numbers_of_items(taken, sensitive)
        actor = build_actor(config, *vectors, ensemble).to(sensitive.device)
        # Parameters without buffers, which hold the numbers of the old log.
        actor.load_state_dict(dict(self.actor.named_parameters()), strict=False)
        return replace(
            self,
            actor=actor,
            sensitive=sensitive,
            histories=histories,
            ensemble=ensemble,
            fingerprint=split.train.fingerprint(),
        )

    @torch.no_grad()
    def weights(self, state: State) -> tuple[float, ...]:
        """The weight of each ranker of the ensemble for the one user in a state."""
        outputs = self.actor(state.users, self.actor.items.encoder_input(state.queue))
        rows = rows_of(outputs, self.actor.list_length).mean(1)[0]
        return tuple(rows[: 0 if self.ensemble is None else len(self.ensemble.rankers)].tolist())

    def with_rankers(self, rankers: Sequence[Ranker[Any]], sensitive: Tensor) -> "FittedPolicy":
        """The same policy over other rankers."""
        # A shallow copy: the parameters are shared, as nothing here trains them.
        items = self.actor.items
        assert isinstance(items, EnsembleItems)
        ensemble, actor = replace(items.ensemble, rankers=tuple(rankers)), copy.copy(self.actor)
        actor.items = replace(items, ensemble=ensemble)
        return replace(self, actor=actor, ensemble=ensemble, sensitive=sensitive)

    def price_table(self) -> PriceTable:
        """Prices by level, for users who are served alone."""
        if self.prices is None:
            raise ConfigError("a Gaussian policy serves no single requests (fit preset fast)")
        return self.prices

    def lists(self, config: FcpoConfig, rule: PlaceRule | None = None) -> ItemLists:
        """How it makes lists, with the spread of these settings; by default at their level."""
        return ItemLists(
            ActorProbabilities(self.actor),
            self.sensitive,
            self.histories,
            PlaceRule(config.alpha_prime) if rule is None else rule,
            self.gini_target(config),
            candidate_cache=self.candidate_cache,
        )

    def gini_target(self, config: FcpoConfig) -> GiniTarget | None:
        """How even lists are to be; None: as they come."""
        if config.spread is None or self.ensemble is None or not self.spread_part:
            return None
        return GiniTarget(config.spread, accurate(self.ensemble.ndcg), self.spread_part)

    def summary(self, config: FcpoConfig) -> str:
        """What the training has led to, in one line."""
        text = f"{len(self.reports)} rounds"
        chosen = best_round(self.reports, config)
        if chosen is not None:
            text += f"; {chosen.remark or chosen}"
        elif self.reports:
            last, limit = self.reports[-1], config.limit_in_training
            share = last.cost / last.limit * limit  # both are sums over an episode
            text += (
                f"; in the simulated sessions of the training {100 * share:.1f} % of what was "
                f"shown was of the limited group, where at most {100 * limit:g} % may be"
            )
        if self.settled and config.rounds and not self.reports:
            text += "; lists are made by the weighted rankers, as training found nothing to add"
        elif self.settled and self.reports:
            text += "; lists are made with the first weights, as no round was clearly better"
        elif self.validation is not None:
            text += f"; validation NDCG {self.validation:.4f}"
        if config.serves_any_level:
            text += "; can make lists under any limits"
        return text

    def save(self, path: Path, kind: str, description: dict[str, Any]) -> None:
        tensors = {f"actor.{name}": value for name, value in self.actor.state_dict().items()}
        if self.ensemble is not None:
            tensors |= self.ensemble.tensors()
        if self.prices is not None:
            tensors |= self.prices.tensors()
        tensors |= {"sensitive": self.sensitive, "histories": self.histories}
        save_model(path, kind, tensors, description)

    def description(self) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint,
            "pretraining_rmse": self.pretraining_rmse,
            "rounds": [report.stored() for report in self.reports],
            "ensemble": None if self.ensemble is None else self.ensemble.description(),
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
        weights, stored = below("actor.", tensors), description["ensemble"]
        ensemble = None if stored is None else restored_ensemble(tensors, stored)
        vectors = weights["encoder.user_vectors"], weights["encoder.item_vectors"][:-1]
        actor = build_actor(config, *vectors, ensemble).to(device)
        actor.load_state_dict(weights)
        policy = cls(
            actor,
            tensors["sensitive"].to(device),
            tensors["histories"],
            ensemble,
            PriceTable.from_tensors(tensors) if config.policy == "softmax" else None,
            [RoundReport(**report) for report in description["rounds"]],
            description["pretraining_rmse"],
            description["fingerprint"],
            description["spread_part"],
            settled=description["settled"],
        )
        return policy, config, description["seed"]


def default_device() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
