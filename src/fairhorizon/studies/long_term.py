"""Long runs of many methods and seeds, step by step while the groups move; none is run twice."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.datasets import DataSpec
from fairhorizon.errors import ConfigError, NoColumnError
from fairhorizon.evaluation.long_term import LongRunSettings
from fairhorizon.histories import check_table
from fairhorizon.methods import AGENTS, Method, longest_first
from fairhorizon.parallel.engine import TaskEngine
from fairhorizon.parallel.processes import HERE
from fairhorizon.recommenders.base import Recommender
from fairhorizon.simulation.moods import KINDS
from fairhorizon.simulation.simulated import SimulationConfig
from fairhorizon.studies.asked_limits import AskedLimits
from fairhorizon.studies.contestant import Contestant
from fairhorizon.studies.long_differences import long_differences
from fairhorizon.studies.long_limits import long_limits
from fairhorizon.studies.long_rows import CountsOverTime, LongTermResult, RunProgress
from fairhorizon.studies.long_summary import limit_summaries, summary_rows
from fairhorizon.studies.long_task import LongTask
from fairhorizon.studies.rows import TrainingRow
from fairhorizon.studies.step_record import SCHEMA
from fairhorizon.studies.study import ModelTask, Study, Task
from fairhorizon.studies.users import UserSource, WorldFit
from fairhorizon.vocabulary import Retrain

REMEDY = "run the same command with --resume to continue"


@dataclass(frozen=True)
class LongStudy:
    """Where results are kept and how they are computed, for all methods and seeds alike.

    `study` has the data, the protocol, the settings of the methods, and their models.
    """

    study: Study
    settings: LongRunSettings
    simulation: SimulationConfig | None = None  # None: users like their test items
    limits: AskedLimits = field(default_factory=AskedLimits)
    round_length: int = 100  # items per user, of what works in rounds
    retrain: Retrain = Retrain.RERANKERS
    by: str = KINDS  # column of the items with their kinds, for rules about them

    def check(self, contestants: Sequence[Contestant]) -> None:
        """Refuse what no run could do with."""
        methods = [contestant.method for contestant in contestants]
        self.study.check(methods)
        for one in (method for method in methods if not method.abilities.long_run):
            raise ConfigError(f"{one.name} serves in no long run (use {one.base}+control)")
        split, length = self.study.dataset().split, self.settings.list_length
        check_table(split.train.n_users, split.train.n_items)
        if length > split.train.n_items:
            raise ConfigError(
                f"lists of {length}: there are only {split.train.n_items} items (give at most "
                "as many)"
            )
        if self.limits and not any(method.abilities.limits for method in methods):
            raise ConfigError(
                f"{self.limits}: none of the methods can keep it (add fcpo or ease+control)"
            )
        self.limits.check(*self._limited())
        self._check_kinds(methods)

    def _check_kinds(self, methods: Sequence[Method]) -> None:
        """Refuse rules about kinds of items where there are none."""
        for model in (self.study.build(method, seed=0) for method in methods):
            try:
                self.kinds_for(model)
            except NoColumnError as error:
                known = f"; there are {', '.join(error.columns)}" if error.columns else ""
                raise ConfigError(
                    f"{model.method}: mmr and kind_quota are about kinds of items, and there is no "
                    f"column {self.by!r}{known} (name one with --by, of the log or of an "
                    "--item-table)"
                ) from None

    def kinds_for(self, model: Recommender) -> Tensor | None:
        """(n_items, kinds) for a method that has a rule about them."""
        return self.user_source().kinds_by(self.by) if model.abilities.kinds else None

    def _limited(self) -> tuple[DataSpec, Path | None, LongRunSettings]:
        """What the limits are about."""
        return self.study.data, self.study.cache_dir, self.settings

    def task(self, contestant: Contestant, seed: int) -> LongTask:
        return LongTask(self, contestant, seed)

    def key(self, method: Method, seed: int) -> str:
        """The same for runs that cannot differ."""
        own: list[object] = [self.round_length, self.retrains(method)]
        if method.base in AGENTS and not self.retrains(method):
            own = []  # they know no rounds
        if method.abilities.limits or self.limits:  # whose excess is recorded for all methods
            own.append(self.limits.fingerprint(*self._limited()))
        model = self.study.build(method, seed)
        if (kinds := self.kinds_for(model)) is not None:
            own.append(hashlib.sha256(kinds.numpy().tobytes()).hexdigest()[:16])
        return self.study.key(
            "long run",
            str(method),
            model.all_settings(),
            self.study.protocol,
            self.settings.stated(),
            self._simulation(),
            own,
        )

    def retrains(self, method: Method) -> bool:
        """Whether its ranker is fitted again between rounds."""
        adapts = method.reranker is not None or method.abilities.limits
        return self.retrain is Retrain.ALL or (self.retrain is Retrain.RERANKERS and adapts)

    def run(
        self,
        contestants: Sequence[Contestant],
        seeds: Sequence[int],
        *,
        resume: bool = False,
        engine: TaskEngine = HERE,
        on_model: Callable[[TrainingRow], object] = lambda _: None,
        on_run: Callable[[RunProgress], object] = lambda _: None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """Make every run that is missing, from models that are trained first if they are missing.

        `on_run` is called at the end of each, also of those on disk already; `meanwhile` is called
        now and then. Interrupted, it leaves what it had, and with `resume` the next run goes on
        from there.
        """
        in_order = sorted(contestants, key=lambda one: longest_first(one.method))
        tasks = [self.task(one, seed) for one in in_order for seed in seeds]
        missing = [task for task in tasks if not task.is_finished()]
        begun = [task.record() for task in missing if task.record().is_begun()]
        if begun and not resume:
            raise ConfigError(
                f"{begun[0].rows_file}: this run is not finished (--resume continues it, another "
                "--out starts again)"
            )
        for task in tasks:
            if task not in missing:
                on_run(task.record().stored_progress())
        for trainings in self._trainings(missing):
            for model in engine.each(trainings, remedy=REMEDY, meanwhile=meanwhile):
                on_model(model)
        for progress in engine.each(missing, remedy=REMEDY, meanwhile=meanwhile):
            if progress.step == self.settings.steps:
                on_run(progress)
            else:
                meanwhile()

    def _simulation(self) -> dict[str, Any] | None:
        return None if self.simulation is None else self.simulation.stated()

    def _trainings(self, tasks: Sequence[LongTask]) -> list[list[ModelTask | WorldFit]]:
        """Of the models that are not there, first those that others start from.

        Methods behind re-rankers share theirs.
        """
        first: dict[Path, ModelTask | WorldFit] = {}
        second: dict[Path, ModelTask | WorldFit] = {}
        for task in tasks:
            file = self.study.model_file(task.contestant.method, task.seed)
            if not file.exists():
                method = task.contestant.method.trained
                model = self.study.build(method, task.seed)
                wave = second if model.prerequisites(self.study.dataset().split) else first
                wave[file] = ModelTask(Task(self.study, (method,), task.seed))
        third: list[ModelTask | WorldFit] = []
        if tasks and self.simulation is not None:
            third.append(WorldFit(self.user_source(), self.simulation))
        return [list(first.values()), list(second.values()), third]

    def user_source(self) -> UserSource:
        return UserSource(self.study, self.limits.item_table)

    def result(self, contestants: Sequence[Contestant], seeds: Sequence[int]) -> LongTermResult:
        """All that a report reads of the runs on disk."""
        settings, steps = self.settings, self.steps(contestants, seeds)
        ndcg, further = self.ndcg_of_users(contestants, seeds), self.limits.bound(*self._limited())
        main = self.limits.main_limit(self.study.data, settings)
        return LongTermResult(
            steps,
            self.counts(contestants, seeds),
            settings.alpha_prime,
            settings.warm_up,
            tuple(summary_rows(steps)),
            tuple(limit_summaries(steps, settings.warm_up, further)),
            self.study.data.group_name,
            settings.labels,
            settings.lag,
            self.description(),
            tuple(long_differences(contestants[0].label, ndcg, seeds)),
            tuple(long_limits(steps, settings.warm_up, main, further)),
        )

    def description(self) -> dict[str, Any]:
        """How the runs were computed, in JSON."""
        return {
            "dataset": self.study.dataset().split.name,
            "protocol": self.study.protocol.value,
            "group": self.study.data.group_name,
            **self.settings.stated(),
            "simulation": self._simulation(),
            "limits": str(self.limits),
            "look_ahead": self.limits.look_ahead,
            "round_length": self.round_length,
            "retrain": self.retrain.value,
        }

    def steps_done(self, contestants: Sequence[Contestant], seeds: Sequence[int]) -> int:
        """Of all runs together, as far as they are on disk."""
        return sum(len(self.task(one, n).record().frame()) for one in contestants for n in seeds)

    def steps(self, contestants: Sequence[Contestant], seeds: Sequence[int]) -> pl.DataFrame:
        """A row per method, seed and step."""
        frames = [self.task(one, seed).record().frame() for one in contestants for seed in seeds]
        return pl.concat([pl.DataFrame(schema=SCHEMA), *frames])

    def counts(
        self, contestants: Sequence[Contestant], seeds: Sequence[int]
    ) -> dict[tuple[str, int], CountsOverTime]:
        """Exposure over time by method and seed."""
        runs = {(one.label, n): self.task(one, n).record() for one in contestants for n in seeds}
        counts = {run: record.counts() for run, record in runs.items()}
        return {run: values for run, values in counts.items() if values is not None}

    def ndcg_of_users(
        self, contestants: Sequence[Contestant], seeds: Sequence[int]
    ) -> dict[str, list[NDArray[np.float64]]]:
        """By method, of each seed; without methods that one of the runs does not have it of."""
        found = {
            one.label: [self.task(one, seed).record().of_users("ndcg") for seed in seeds]
            for one in contestants
        }
        known = {label: [one for one in runs if one is not None] for label, runs in found.items()}
        return {label: runs for label, runs in known.items() if len(runs) == len(seeds)}
