"""Finished lists of any system, read from a file: a method that is compared as it is."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fairhorizon.data.given_file import GivenFile
from fairhorizon.data.recommendations import read_recommendations
from fairhorizon.errors import ConfigError
from fairhorizon.recommenders.base import (
    Capabilities,
    FitTask,
    RankedLists,
    Recommender,
    ServingPlan,
)
from fairhorizon.recommenders.online import OnlineRecommender
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.storage import load_model, save_model


class GivenLists(Recommender):
    """Lists that are shown as they are: nothing is left out, nothing is filled up."""

    kind = "given-lists"
    method = "lists"
    capabilities = Capabilities(feedback=False, long_run=False)
    queue_length = 1

    lists_: Tensor  # (n_users, longest) item codes, -1 after the end of a list

    def __init__(self, config: GivenFile | None = None, *, seed: int = 0) -> None:
        self.config, self.seed = config or GivenFile(), seed

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The method of a file with the columns user, item and rank, before its fit."""
        return cls(GivenFile.from_path(path))

    @property
    def settings(self) -> GivenFile:
        return self.config

    def _fit(self, task: FitTask) -> None:
        log = task.split.train
        shown = read_recommendations(self.config.path(self.method), log).distinct()
        self.lists_ = torch.from_numpy(shown.first(int(shown.per_user().max())))
        self.sensitive_, self.fingerprint_ = torch.tensor(task.group), log.fingerprint()
        missing = int((shown.per_user() == 0).sum())
        self.remarks_ = (f"{missing:,} of {log.n_users:,} users have no list",) if missing else ()

    def rank(
        self,
        scenario: Scenario,
        *,
        length: int,
        feedback: bool = False,  # noqa: ARG002  # finished lists do not react
        seed: int | None = None,  # noqa: ARG002  # nothing is drawn
    ) -> RankedLists:
        lists = np.full((scenario.n_users, length), -1, dtype=np.int64)
        own = self.lists_[scenario.codes_of(torch.arange(scenario.n_users)), :length].numpy()
        lists[:, : own.shape[1]] = own
        return RankedLists(lists)

    def _online(self, plan: ServingPlan) -> OnlineRecommender:  # noqa: ARG002
        raise ConfigError("finished lists serve in no long run (give scores: --scores NAME=FILE)")

    def description(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "config": self.config.model_dump(mode="json"),
            "seed": self.seed,
            "fingerprint": self.fingerprint_,
            "remarks": list(self.remarks_),
        }

    def save(self, path: Path) -> None:
        tensors = {"lists": self.lists_, "sensitive": self.sensitive_}
        save_model(path, self.kind, tensors, self.description())

    @classmethod
    def load(cls, path: Path) -> Self:
        tensors, description = load_model(path, cls.kind)
        config = GivenFile.from_file(description["config"])
        model = cls(config, seed=description["seed"])
        model.lists_, model.sensitive_ = tensors["lists"], tensors["sensitive"]
        model.fingerprint_ = description["fingerprint"]
        model.remarks_ = tuple(description["remarks"])
        return model
