"""FCPO as a recommender: fit, recommend, save, load."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.experts.actor import ExpertActor
from fairhorizon.agents.fcpo.experts.panel import Panel
from fairhorizon.agents.fcpo.learning.start import (
    Fitted,
    check,
    from_embeddings,
    from_rankers,
    histories,
)
from fairhorizon.agents.fcpo.learning.training import (
    RoundReport,
    Training,
    build_actor,
    queue_length,
)
from fairhorizon.agents.fcpo.server import FcpoServer
from fairhorizon.agents.fcpo.serving.calibration import calibrate, serve_alone
from fairhorizon.agents.fcpo.serving.lists import ItemLists
from fairhorizon.agents.fcpo.serving.weight_check import better_weights
from fairhorizon.agents.retraining import Retraining
from fairhorizon.agents.walk import serve
from fairhorizon.allocation.price_table import PriceTable
from fairhorizon.allocation.request_guard import ExposureGuard
from fairhorizon.data.splits import Split
from fairhorizon.environment.dynamics import advance
from fairhorizon.environment.feedback import Scenario, validation_scenario
from fairhorizon.errors import ConfigError
from fairhorizon.exposure.counts import Exposure
from fairhorizon.exposure.groups import popular_group
from fairhorizon.exposure.limits import Constraint, PopularityLimit
from fairhorizon.policy.actor import GaussianActor
from fairhorizon.storage import below, load_model, save_model
from fairhorizon.vocabulary import OnEpoch

NONE: Fitted = MappingProxyType({})


class Fcpo:
    """Fairness-Constrained Policy Optimization (the paper's Algorithm 1).

    A softmax policy over items serves any level of the limit (item_lists.py). A Gaussian policy is
    learned for one limit, and its lists are sampled from it: its mean is another policy with
    another exposure.
    """

    method = "fcpo"

    actor_: GaussianActor
    sensitive_: Tensor  # (n_items,) bool, the group whose exposure is limited
    history_: list[RoundReport]
    pretraining_rmse_: float | None  # of embeddings, where there is no warm start
    panel_: Panel | None  # the rankers of a warm start
    histories_: Tensor  # (n_users,) how many training items each user has
    dial_: PriceTable | None  # of a softmax policy
    fingerprint_: str

    def __init__(self, config: FcpoConfig | None = None, *, seed: int = 0) -> None:
        self.config = config or FcpoConfig()
        self.seed = seed

    @property
    def alpha_prime(self) -> float:
        return self.config.alpha_prime

    @property
    def popular_share(self) -> float:
        return self.config.popular_share

    @property
    def queue_length(self) -> int:
        return queue_length(self.config, self.panel_)

    def at(self, alpha_prime: float) -> "Fcpo":
        """The same model, serving at another level."""
        if not self.config.serves_any_level:
            raise ConfigError(
                f"this policy was trained for alpha' {self.alpha_prime:g} and serves no other "
                "(fit it again with --alpha-prime, or fit the preset strong, which serves any)"
            )
        if not 0 < alpha_prime <= 1:
            raise ConfigError(
                f"alpha' {alpha_prime:g} is no share of what is shown (give one above 0, up to 1)"
            )
        model = copy.copy(self)
        model.config = FcpoConfig.model_validate(
            {**self.config.model_dump(), "alpha_prime": alpha_prime}
        )
        return model

    def fit(
        self,
        split: Split,
        *,
        sensitive: NDArray[np.bool_] | None = None,
        fitted: Fitted = NONE,
        fitted_early: Fitted = NONE,
        on_round: Callable[[RoundReport], object] | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> Self:
        """Warm start, rounds of CPO to the end, and rankers fitted anew on the whole training log.

        Rankers of a warm start that are `fitted` already, with this seed and on this split, are
        taken as they are; so are those that were fitted on its earlier part (unseen.py).
        """
        training = self.start(
            split, sensitive=sensitive, fitted=fitted, fitted_early=fitted_early, on_epoch=on_epoch
        )
        for report in training.rounds():
            if on_round is not None:
                on_round(report)
        return self.adopt(training, fitted=fitted, on_epoch=on_epoch)

    def start(
        self,
        split: Split,
        *,
        sensitive: NDArray[np.bool_] | None = None,
        fitted: Fitted = NONE,
        fitted_early: Fitted = NONE,
        on_epoch: OnEpoch | None = None,
    ) -> Training:
        """A training before its first round; without `sensitive`, the popular items are limited.

        `on_epoch` hears the epochs of pretrained embeddings and their validation RMSE, or those
        of the rankers of a warm start and their validation NDCG.
        """
        check(split, self.config)
        if sensitive is None:
            sensitive = popular_group(split.train.item_counts(), self.config.popular_share)
        groups = torch.from_numpy(sensitive).to(default_device())
        if not self.config.warm_start:
            return from_embeddings(split, self.config, groups, self.seed, on_epoch)
        early = self.config.starts == "unseen"
        already = fitted_early if early else fitted
        return from_rankers(split, self.config, groups, self.seed, already, on_epoch)

    def adopt(
        self,
        training: Training,
        *,
        fitted: Fitted = NONE,
        on_epoch: OnEpoch | None = None,
        refit: bool = True,
    ) -> Self:
        """Take over the policy of a training: the best on validation, else the present one.

        After a finished training on unseen feedback the rankers are fitted on all of it, unless
        `refit` is false.
        """
        self.config, self.seed = training.config, training.seed
        self.actor_ = training.best_actor()
        self.panel_ = panel = training.panel
        if isinstance(self.actor_, ExpertActor) and panel is not None:
            if refit and training.finished and ends_with_refit(self.config):
                names = [ranker.method for ranker in panel.rankers]
                protocol = self.config.protocol
                whole = Panel.fit(names, training.split, protocol, self.seed, fitted, on_epoch)
                self.panel_ = panel = whole.weighed(panel.weights)
            self.actor_.panel = panel
            self.actor_.without_price()
        self.sensitive_ = training.sensitive
        self.histories_ = histories(training.split)
        self.history_ = list(training.reports)
        self.pretraining_rmse_ = training.pretraining_rmse
        self.fingerprint_ = training.fingerprint
        self.dial_ = None
        if self.config.policy == "softmax":
            states = validation_scenario(training.split, self.queue_length, self.config.protocol)
            if self.config.check_weights and isinstance(self.actor_, ExpertActor):
                weights = better_weights(self._lists(), states, self.config, self.seed)
                if weights is not None:
                    self.actor_.settle_on(weights)
            self.dial_ = calibrate(self._lists(), states, self.seed)
        return self

    def recommend(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> NDArray[np.int64]:
        """(n_users, length) item codes, -1 where the catalogue or the limit leaves nothing.

        Without feedback a user's whole list is handed out at once; with it, what is liked enters
        the state before the next list of K is chosen. The seed is that of the fit unless given.
        """
        seed = self.seed if seed is None else seed
        if self.config.policy == "softmax":
            lists = self._lists()
            served = lists.interactive if feedback else lists.one_shot
            shown = served(scenario, length)
        elif self.panel_ is not None:
            shown = self._recommend_under_control(scenario, length, feedback, seed)
        else:
            shown = serve(
                self.actor_,
                scenario,
                self.sensitive_,
                length=length,
                generator=torch.Generator().manual_seed(seed),
                feedback=feedback,
            )
        array: NDArray[np.int64] = shown.cpu().numpy()
        return array

    def recommend_one_by_one(
        self, scenario: Scenario, *, length: int, guard: ExposureGuard | None = None
    ) -> NDArray[np.int64]:
        """Lists as requests come, one user after the other, each by what is known by then.

        After every list the limit holds for all that was shown so far (docs/guarantee.md). The
        price of the guard begins with that of the dial, unless a guard is given.
        """
        price = self._dial().price(self.alpha_prime, length)
        guard = guard or ExposureGuard(self.alpha_prime, price=price)
        array: NDArray[np.int64] = self._lists().one_by_one(scenario, length, guard).numpy()
        return array

    def recommend_at_price(self, scenario: Scenario, *, length: int) -> NDArray[np.int64]:
        """Everybody's list as if nobody else was there, at the price calibrated on validation.

        The limit holds as nearly as users are like those of the validation; nothing guarantees it.
        """
        price = self._dial().price(self.alpha_prime, length)
        array: NDArray[np.int64] = serve_alone(self._lists(), scenario, price, length).numpy()
        return array

    def _dial(self) -> PriceTable:
        if self.dial_ is None:
            raise ConfigError("a Gaussian policy serves no single requests (fit preset strong)")
        return self.dial_

    def _lists(self) -> ItemLists:
        config = self.config
        return ItemLists(
            self.actor_, self.sensitive_, self.histories_, config.alpha_prime, config.spread
        )

    def server(
        self,
        constraints: Sequence[Constraint],
        *,
        learn: bool = True,
        seed: int | None = None,
        retraining: Retraining | None = None,
    ) -> FcpoServer:
        """The policy at work in a long run; the model stays as it is.

        With `retraining`, the rankers of a warm start are fitted anew between rounds.
        """
        return FcpoServer(
            self.actor_,
            self.config,
            queue_length=self.queue_length,
            constraints=constraints,
            learn=learn,
            seed=self.seed if seed is None else seed,
            retraining=retraining,
        )

    def _recommend_under_control(
        self, scenario: Scenario, length: int, feedback: bool, seed: int
    ) -> Tensor:
        """All users together, step by step, at the price at which the limit holds."""
        limit = PopularityLimit(self.alpha_prime)
        server = self.server([limit], learn=False, seed=seed)
        sensitive = self.sensitive_.cpu().numpy()
        exposure = Exposure(np.zeros(len(sensitive), np.int64), lambda _: sensitive)
        state, answers = scenario.begin(torch.arange(scenario.n_users), self.sensitive_.device)
        shown = []
        for _ in range(-(-length // self.config.list_length)):
            lists = server.serve(state, exposure)
            outcome = advance(state, lists, answers, self.sensitive_)
            exposure.add(lists)
            if feedback:
                server.hear(lists, outcome, exposure)
            state = outcome.state
            shown.append(lists)
        return torch.cat(shown, dim=1)[:, :length]

    def save(self, path: Path) -> None:
        tensors = {f"actor.{name}": value for name, value in self.actor_.state_dict().items()}
        if self.panel_ is not None:
            tensors |= self.panel_.tensors()
        if self.dial_ is not None:
            tensors |= self.dial_.tensors()
        tensors |= {"sensitive": self.sensitive_, "histories": self.histories_}
        save_model(path, self.method, tensors, self.description())

    def description(self) -> dict[str, Any]:
        """What was fitted, without how long it took: same seed, same bytes."""
        rounds = [asdict(report) for report in self.history_]
        for report in rounds:
            del report["seconds"]
        return {
            "method": self.method,
            "config": self.config.model_dump(mode="json"),
            "seed": self.seed,
            "fingerprint": self.fingerprint_,
            "pretraining_rmse": self.pretraining_rmse_,
            "rounds": rounds,
            "panel": None if self.panel_ is None else self.panel_.description(),
        }

    @classmethod
    def load(cls, path: Path) -> Self:
        tensors, description = load_model(path, cls.method)
        model = cls(FcpoConfig.model_validate(description["config"]), seed=description["seed"])
        weights = below("actor.", tensors)
        stored = description["panel"]
        model.panel_ = None if stored is None else Panel.from_parts(tensors, stored)
        vectors = weights["encoder.user_vectors"], weights["encoder.item_vectors"][:-1]
        model.actor_ = build_actor(model.config, *vectors, model.panel_).to(default_device())
        model.actor_.load_state_dict(weights)
        model.sensitive_ = tensors["sensitive"].to(default_device())
        model.histories_ = tensors["histories"]
        softmax = model.config.policy == "softmax"
        model.dial_ = PriceTable.from_tensors(tensors) if softmax else None
        model.history_ = [RoundReport(**report) for report in description["rounds"]]
        model.pretraining_rmse_ = description["pretraining_rmse"]
        model.fingerprint_ = description["fingerprint"]
        return model


def ends_with_refit(config: FcpoConfig) -> bool:
    """Whether rankers that were fitted on a part of the log are fitted on all of it in the end."""
    return config.starts == "unseen"


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
