"""FCPO as a recommender: fit, recommend, save, load."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.agents.config import FcpoConfig
from fairhorizon.agents.experts import Panel
from fairhorizon.agents.fcpo_server import FcpoServer
from fairhorizon.agents.retraining import Retraining
from fairhorizon.agents.rollout import serve
from fairhorizon.agents.training import RoundReport, Training, build_actor
from fairhorizon.data import Split
from fairhorizon.environment import Exposure, Scenario, advance
from fairhorizon.environment.constraints import Constraint, PopularityLimit
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.groups import popular_group
from fairhorizon.policy import GaussianActor
from fairhorizon.rankers import Ranker
from fairhorizon.rankers.mf import Mf
from fairhorizon.storage import below, load_model, save_model


class Fcpo:
    """Fairness-Constrained Policy Optimization (the paper's Algorithm 1).

    Lists are sampled from the policy, because that is what the cost limit was learned for: the
    mean of the Gaussian is another policy with another exposure.
    """

    method = "fcpo"

    actor_: GaussianActor
    sensitive_: Tensor  # (n_items,) bool, the group whose exposure is limited
    history_: list[RoundReport]
    pretraining_rmse_: float
    panel_: Panel | None  # the rankers of a warm start
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
        panel = self.panel_
        return (
            self.config.history if panel is None else max(self.config.history, panel.queue_length)
        )

    def fit(
        self,
        split: Split,
        *,
        sensitive: NDArray[np.bool_] | None = None,
        fitted: Mapping[str, Ranker[Any]] | None = None,
        on_round: Callable[[RoundReport], object] | None = None,
    ) -> Self:
        """Pretrain the embeddings, train to the end, keep the best policy that keeps the limit.

        Rankers of a warm start that are `fitted` already, with this seed and on this split, are
        taken as they are.
        """
        training = self.start(split, sensitive=sensitive, fitted=fitted)
        for report in training.rounds():
            if on_round is not None:
                on_round(report)
        return self.adopt(training)

    def start(
        self,
        split: Split,
        *,
        sensitive: NDArray[np.bool_] | None = None,
        fitted: Mapping[str, Ranker[Any]] | None = None,
        on_epoch: Callable[[int, float], object] | None = None,
    ) -> Training:
        """A training before its first round; without `sensitive`, the popular items are limited.

        `on_epoch` hears the epochs of the pretraining and their validation RMSE.
        """
        config = self.config
        if not len(split.train):
            raise DataError(
                f"{split.name or 'the split'} has nothing to train on",
                remedy="a user's last item is for validation and a fifth for test: give more",
            )
        if config.list_length * config.horizon > split.train.n_items:
            raise ConfigError(
                f"{config.horizon} lists of {config.list_length} need more than the "
                f"{split.train.n_items} items there are (set a smaller horizon or list_length)"
            )
        if sensitive is None:
            sensitive = popular_group(split.train.item_counts(), config.popular_share)
        pmf = Mf(config.pmf, seed=self.seed).fit(split, on_epoch=on_epoch)
        panel = None
        if config.warm_start:
            names, protocol = config.warm_start, config.protocol
            panel = Panel.fit(names, split, protocol, self.seed, fitted or {})
        return Training(
            split,
            config,
            vectors=(pmf.user_vectors_, pmf.item_vectors_),
            sensitive=torch.from_numpy(sensitive).to(default_device()),
            seed=self.seed,
            pretraining_rmse=pmf.validation_rmse_,
            panel=panel,
        )

    def adopt(self, training: Training) -> Self:
        """Take over the policy of a training: the best on validation, else the present one."""
        self.config, self.seed = training.config, training.seed
        self.actor_ = training.best_actor()
        self.sensitive_ = training.sensitive
        self.history_ = list(training.reports)
        self.pretraining_rmse_ = training.pretraining_rmse
        self.panel_ = training.panel
        self.fingerprint_ = training.fingerprint
        return self

    def recommend(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> NDArray[np.int64]:
        """(n_users, length) item codes, -1 where the catalogue is exhausted.

        Without feedback a user's whole list is handed out at once; with it, what is liked enters
        the state before the next list of K is chosen. The seed is that of the fit unless given.
        """
        seed = self.seed if seed is None else seed
        if self.panel_ is not None:
            return self._recommend_under_control(scenario, length, feedback, seed)
        generator = torch.Generator().manual_seed(seed)
        lists = serve(
            self.actor_,
            scenario,
            self.sensitive_,
            length=length,
            generator=generator,
            feedback=feedback,
        )
        array: NDArray[np.int64] = lists.cpu().numpy()
        return array

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
    ) -> NDArray[np.int64]:
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
        array: NDArray[np.int64] = torch.cat(shown, dim=1)[:, :length].cpu().numpy()
        return array

    def save(self, path: Path) -> None:
        tensors = {f"actor.{name}": value for name, value in self.actor_.state_dict().items()}
        if self.panel_ is not None:
            tensors |= self.panel_.tensors()
        save_model(path, self.method, tensors | {"sensitive": self.sensitive_}, self.description())

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
        model.history_ = [RoundReport(**report) for report in description["rounds"]]
        model.pretraining_rmse_ = description["pretraining_rmse"]
        model.fingerprint_ = description["fingerprint"]
        return model


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
