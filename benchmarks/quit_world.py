"""The world of benchmarks/quit_rule.py: users who quit when they are bored, and runs among them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from torch import Tensor

from fairhorizon.datasets import DataSpec
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.evaluation.run_records import choosing_users
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.limits.counts import Counts, Exposure
from fairhorizon.methods import Method
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.recommenders.online import OnlineRecommender
from fairhorizon.settings import Given
from fairhorizon.simulation.churn import ChurnConfig, QuitRule
from fairhorizon.simulation.feedback import UserModel
from fairhorizon.simulation.simulated import SimulationConfig
from fairhorizon.studies.long_term import LongStudy, NamedMethod, RunLimits
from fairhorizon.studies.study import Study, Task
from fairhorizon.vocabulary import Retrain

LONG = Method("fcpo", preset="long")


@dataclass(frozen=True)
class Figures:
    """Of a run, at its end."""

    likes: float  # per user who ever came
    showings: float  # per user: the length of stay, as lists have one item
    popular: float  # share of all showings, as the limit counts
    over: float  # share of the steps after which that share was above the limit

    @property
    def per_step(self) -> float:
        return self.likes / self.showings

    @classmethod
    def of(cls, last: Mapping[str, float]) -> "Figures":
        """From the last row of the record of a run."""
        named = ("likes", "showings", "limited_rate", "violation_share")
        return cls(*(float(last[name]) for name in named))


@dataclass(frozen=True)
class World:
    """Users with the quit rule, served one item a step under a limit from the first step on."""

    folder: Path  # of models and runs
    data: str
    limit: float
    steps: int = 60
    rule: QuitRule = field(default_factory=lambda: QuitRule(most=4, of=10))
    item_table: str | None = None  # with the kinds of items; None: the data set has them
    settings: Mapping[str, Given] = field(default_factory=dict)

    @cached_property
    def study(self) -> LongStudy:
        churn = ChurnConfig(quits=self.rule)
        return LongStudy(
            Study(self.folder, DataSpec(source=self.data), ks=(1,), settings=self.settings),
            LongRunSettings(steps=self.steps, alpha_prime=self.limit, warm_up=0),
            SimulationConfig(churn=churn),
            RunLimits(item_table=self.item_table),
            retrain=Retrain.NONE,
        )

    @cached_property
    def kinds(self) -> Tensor:
        """(n_items, kinds) the part that each kind has in an item."""
        assert self.study.simulation is not None
        kinds = self.study.user_source().kinds(self.study.simulation.churn)
        assert kinds is not None
        return kinds

    @cached_property
    def counts(self) -> Counts:
        """Of items in the training log."""
        return self.study.study.dataset().split.train.item_counts().astype(np.int64)

    def known(self, method: str, seed: int) -> Figures:
        """Of a method by its name; runs are kept, and none is made twice."""
        named = NamedMethod.at_limit(Method.parse(method), self.limit)
        self.study.run([named], [seed], resume=True)
        return Figures.of(self.study.steps([named], [seed]).row(-1, named=True))

    def policy(self, seed: int) -> Fcpo:
        """The fitted `fcpo:long`."""
        method = LONG.limited_to(self.limit)
        model, _ = Task(self.study.study, (method,), seed).trained(self.study.study.dataset())
        assert isinstance(model, Fcpo)
        return model

    def panel(self, seed: int) -> Ensemble:
        """The rankers that `fcpo:long` weighs."""
        panel = self.policy(seed).policy_.ensemble
        assert panel is not None
        return panel

    def users(self, panel: Ensemble, seed: int) -> UserModel:
        source = self.study.user_source()
        return source.users(self.study.simulation, panel.queue_length, seed)

    def served_by(self, server: OnlineRecommender, users: UserModel) -> Figures:
        """Of a run by a server that the command line does not know."""
        choosing = choosing_users(users.n_users)  # they count in no figure of the others either
        settings, exposure = self.study.settings, Exposure(self.counts)
        run = LongRun(server, users, exposure, settings, choosing=choosing)
        row: Mapping[str, float] = {}
        while not run.finished:
            row = run.step()
        return Figures.of(row)
