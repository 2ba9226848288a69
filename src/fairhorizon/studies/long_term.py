"""Long runs of many methods and seeds, step by step while the groups move; none is run twice.

A study trains the models that are missing, then takes every run to its last step, from a checkpoint
where an earlier one ended. The rows of all steps are on disk; `long_results.py` sums them up.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from fairhorizon.data.synthetic import market_of
from fairhorizon.datasets import DataSpec, bound_limits, item_attribute, key_of
from fairhorizon.errors import ConfigError, ModelError, NoColumnError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.evaluation.run_records import by_activity, practice_users
from fairhorizon.fcpo.online import OnlineFcpo
from fairhorizon.files import write_json
from fairhorizon.histories import check_table
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.groups import attribute_values, values_of_items
from fairhorizon.limits.language import POPULAR, GroupOf, Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.limits.step_limits import PopularityLimit, StepLimit, step_limit
from fairhorizon.methods import RECOMMENDERS, Method, longest_first
from fairhorizon.metrics.shares import ROUNDING
from fairhorizon.parallel.engine import HERE, TaskEngine
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.online import OnlineRecommender, ResponseLearner
from fairhorizon.recommenders.ranked.controlled import OnlineControlled
from fairhorizon.simulation.churn import KINDS, ChurnConfig, calibrated_like_adds
from fairhorizon.simulation.feedback import UserModel, evaluation_scenario
from fairhorizon.simulation.response import ResponseConfig, ResponseModel, fit_response
from fairhorizon.simulation.simulated import SimulatedUsers, SimulationConfig
from fairhorizon.storage import load_model, save_model
from fairhorizon.studies.long_results import (
    CountsOverTime,
    LongTermResult,
    RunProgress,
    differences,
    limit_summaries,
    run_limit_rows,
    run_summaries,
)
from fairhorizon.studies.rows import TrainingRow
from fairhorizon.studies.step_record import EVERY, SCHEMA, StepRecord
from fairhorizon.studies.study import ModelTask, Study, Task, fingerprint
from fairhorizon.vocabulary import Labels, Retrain, Scope

REMEDY = "run the same command with --resume to continue"
PRETRAINED = "pretrained"  # kind of file: what was learned in pretraining runs
SEEDS_APART = 1000  # seeds of pretraining runs are so far from those of runs, and from each other
RESPONSE = "response"  # the kind of file that a response model is kept in
# Patience is calibrated so that half of the users are still there after 60 steps of one item each,
# served by the ensemble of rankers without a limit.
MEASURE = Method("stack")
CALIBRATED_AFTER = 60
STILL_THERE = 0.5


# ---- The users: those of the log, or simulated ones ----------------------------------------------


@dataclass(frozen=True)
class UserSource:
    """Where users come from, and where their response model is kept."""

    study: Study
    item_table: str | None = None  # with the kinds of items

    @property
    def folder(self) -> Path:
        return self.study.folder / "models"

    def users(self, simulation: SimulationConfig | None, queue_length: int, seed: int) -> UserModel:
        """Users who like their test items; with a simulation, users who follow a response model."""
        split, protocol = self.study.dataset().split, self.study.protocol
        if simulation is None:
            return evaluation_scenario(split, queue_length, protocol)
        settled, response = self.settled(simulation), self.response()
        kinds = self.kinds(settled.churn)
        return SimulatedUsers.from_split(
            response, split, queue_length, protocol, settled, seed, kinds
        )

    def response(self) -> ResponseModel:
        """The truth of a synthetic market, else what was fitted to the items held out, and kept."""
        market = market_of(self.study.data.source)
        if market is not None:
            return ResponseModel.from_market(market)
        config = ResponseConfig()
        file = self.folder / f"response-{self._key('response', config)}.safetensors"
        try:
            return ResponseModel(**load_model(file, RESPONSE)[0])
        except ModelError:
            pass  # not fitted yet
        response = fit_response(self.study.dataset().split, config)
        save_model(file, RESPONSE, vars(response), config.model_dump(mode="json"))
        return response

    def settled(self, simulation: SimulationConfig) -> SimulationConfig:
        """With what a like adds to patience, so that half of the users stay for 60 steps.

        They are served by `stack` with its own settings, without a limit. Who stays would get the
        same lists whatever the others do, so one run of users who never leave is enough.
        """
        churn = simulation.churn
        if churn is None or churn.patience is None or churn.like_adds is not None:
            return simulation
        steady = simulation.model_copy(update={"churn": None})
        file = self.folder / f"patience-{self._key('patience', churn, steady)}.json"
        try:
            like_adds = float(json.loads(file.read_text(encoding="utf-8"))["like_adds"])
        except (OSError, ValueError, KeyError):
            like_adds = self._calibrate(churn, steady)
            write_json(file, {"like_adds": like_adds, "served_by": MEASURE.name})
        changed = churn.model_copy(update={"like_adds": like_adds})
        return simulation.model_copy(update={"churn": changed})

    def _calibrate(self, churn: ChurnConfig, steady: SimulationConfig) -> float:
        dataset = self.study.dataset()
        # Default settings, so that the users are the same whatever settings a study compares.
        study = replace(self.study, settings={})
        model, _ = Task(study, (MEASURE,), 0).trained(dataset)
        server = model.online([], list_length=1)
        users = self.users(steady, server.queue_length, seed=0)
        settings = LongRunSettings(steps=CALIBRATED_AFTER)
        run = LongRun(server, users, Exposure(dataset.split.train.item_counts()), settings)
        counts = [(run.likes_of_users(), run.showings_of_users())]
        while not run.finished:
            run.step()
            counts.append((run.likes_of_users(), run.showings_of_users()))
        # Counts are cumulative; their differences are those of single steps.
        liked, shown = (torch.stack(part).diff(dim=0) for part in zip(*counts, strict=True))
        most = churn.drawn_patience(users.n_users).most
        return calibrated_like_adds(liked, shown, most, STILL_THERE)

    def kinds(self, churn: ChurnConfig | None) -> Tensor | None:
        """What users tire of or are bored by; None if by nothing."""
        if churn is None or not churn.needs_kinds:
            return None
        return self.kinds_by(churn.by)

    def kinds_by(self, column: str) -> Tensor:
        """(n_items, kinds) the part that each value of a column has in an item."""
        study = self.study
        cells = item_attribute(study.data, self.item_table, column, study.cache_dir)
        names = {name: n for n, name in enumerate(attribute_values(cells))}
        kinds = np.zeros((len(cells), len(names)), dtype=np.float32)
        for item, values in enumerate(values_of_items(cells)):
            for value in values:
                kinds[item, names[value]] = 1 / len(values)
        return torch.from_numpy(kinds)

    def _key(self, what: str, *settings: ResponseConfig | ChurnConfig | SimulationConfig) -> str:
        described = [one.model_dump(mode="json") for one in settings]
        own = described[0] if len(described) == 1 else described
        return key_of(self.study.data, self.study.cache_dir, what, own)


@dataclass(frozen=True)
class UserModelFit:
    """The response model of simulated users to be fitted, their patience calibrated, and kept."""

    source: UserSource
    simulation: SimulationConfig

    def prepare(self) -> None:
        self.source.study.dataset()

    def rows(self) -> Iterator[TrainingRow]:
        begin = time.perf_counter()
        self.source.response()
        self.source.settled(self.simulation)
        yield TrainingRow("simulated users", time.perf_counter() - begin)


# ---- The study -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedMethod:
    """A method of a long run under the name that it was asked for by."""

    label: str
    method: Method

    @classmethod
    def at_limit(cls, method: Method, alpha_prime: float) -> Self:
        """At the level alpha', if it has levels of a share and none was given."""
        is_open = method.capabilities.level_is_share and method.level is None
        return cls(str(method), method.limited_to(alpha_prime) if is_open else method)


@dataclass(frozen=True)
class RunLimits:
    """What is kept beside the limit on the popular group, and how."""

    further: tuple[Limit, ...] = ()
    item_table: str | None = None  # a file with a row per item; without it the log has the columns
    look_ahead: bool = True  # keep items from entering the group where that would break a limit

    def __bool__(self) -> bool:
        return bool(self.further)

    def __str__(self) -> str:
        return ", ".join(map(str, self.further))

    def bound(
        self, data: DataSpec, cache_dir: Path | None, settings: LongRunSettings
    ) -> list[ResolvedLimit]:
        """The further limits; where groups move, they count by the labels of the run if unsaid."""
        lag = settings.lag if settings.labels is Labels.LAGGED else 0
        stated = [
            replace(limit, labels=settings.labels, lag=lag)
            if limit.group == GroupOf(POPULAR) and limit.labels is None
            else limit
            for limit in self.further
        ]
        return bound_limits(stated, data, cache_dir, self.item_table)

    def main_limit(self, data: DataSpec, settings: LongRunSettings) -> Limit:
        """The first limit as users write it, with its labels where groups move."""
        limit = Limit(data.limited_group, settings.alpha_prime)
        if data.group_column is not None:
            return limit
        lag = settings.lag if settings.labels is Labels.LAGGED else 0
        return replace(limit, labels=settings.labels, lag=lag)

    def main(self, alpha_prime: float, settings: LongRunSettings) -> StepLimit:
        """The limit on the popular group, or on that of the data."""
        # What a warm-up beyond the last step lends would never be paid back.
        warm_up = min(settings.warm_up, settings.steps)
        return PopularityLimit(alpha_prime, warm_up, settings.labels, look_ahead=self.look_ahead)

    def steps(
        self, data: DataSpec, cache_dir: Path | None, settings: LongRunSettings
    ) -> list[StepLimit]:
        """The further limits as steps have to keep them."""
        warm_up = min(settings.warm_up, settings.steps)
        return [
            step_limit(one, warm_up, look_ahead=self.look_ahead)
            for one in self.bound(data, cache_dir, settings)
        ]

    def fingerprint(
        self, data: DataSpec, cache_dir: Path | None, settings: LongRunSettings
    ) -> list[object]:
        """The same for the same limits on the same items."""
        groups = [fingerprint(one) for one in self.bound(data, cache_dir, settings)]
        return [groups, self.look_ahead]

    def check(self, data: DataSpec, cache_dir: Path | None, settings: LongRunSettings) -> None:
        """Refuse limits on groups that no showings could keep together.

        A user is shown an item once, or as often as repeats allow: a small group cannot have a
        large share of a long run.
        """
        shares = [
            one
            for one in self.bound(data, cache_dir, settings)
            if not one.limit.is_gini and not one.is_dynamic and one.limit.scope is Scope.ALL
        ]
        if not shares:
            return
        members = np.stack([one.members for one in shares])
        kinds, sizes = np.unique(members, axis=1, return_counts=True)  # items in the same groups
        sizes = sizes * settings.most_showings
        shown = min(settings.steps * settings.list_length, int(sizes.sum()))
        sign = np.array([-1.0 if one.limit.is_floor else 1.0 for one in shares])
        # Feasibility only, so the objective is 0. An unknown per kind of item: its share of what a
        # user is shown in the whole run, at most as often as its items can be shown.
        found = linprog(
            np.zeros(len(sizes)),
            A_ub=sign[:, None] * kinds,
            b_ub=sign * np.array([one.limit.share for one in shares]) + ROUNDING,
            A_eq=np.ones((1, len(sizes))),
            b_eq=[1.0],
            bounds=[(0.0, size / shown) for size in sizes],
        )
        if not found.success:
            raise ConfigError(
                f"{self}: no {shown} items that a user may be shown keep this (loosen a limit or "
                "lower a floor)"
            )


@dataclass(frozen=True)
class LongStudy:
    """Where results are kept and how they are computed, for all methods and seeds alike.

    `study` has the data, the protocol, the settings of the methods, and their models.
    """

    study: Study
    settings: LongRunSettings
    simulation: SimulationConfig | None = None  # None: users like their test items
    limits: RunLimits = field(default_factory=RunLimits)
    round_length: int = 100  # items per user, of what works in rounds
    retrain: Retrain = Retrain.RERANKERS
    by: str = KINDS  # column of the items with their kinds, for rules about them

    def check(self, chosen: Sequence[NamedMethod]) -> None:
        """Refuse what no run could do with."""
        methods = [named.method for named in chosen]
        self.study.check(methods)
        for one in (method for method in methods if not method.capabilities.long_run):
            raise ConfigError(f"{one.name} serves in no long run (use {one.trained_name}+control)")
        split, length = self.study.dataset().split, self.settings.list_length
        check_table(split.train.n_users, split.train.n_items)
        if length > split.train.n_items:
            raise ConfigError(
                f"lists of {length}: there are only {split.train.n_items} items (give at most "
                "as many)"
            )
        if self.limits and not any(method.capabilities.limits for method in methods):
            raise ConfigError(
                f"{self.limits}: none of the methods can keep it (add fcpo or ease:recent+control)"
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
        return self.user_source().kinds_by(self.by) if model.capabilities.kinds else None

    def _limited(self) -> tuple[DataSpec, Path | None, LongRunSettings]:
        """What the limits are about."""
        return self.study.data, self.study.cache_dir, self.settings

    def task(self, named: NamedMethod, seed: int) -> "LongTask":
        return LongTask(self, named, seed)

    def key(self, method: Method, seed: int) -> str:
        """The same for runs that cannot differ."""
        own: list[object] = [self.round_length, self.retrains(method)]
        # Recommenders know no rounds: their runs do not depend on how long a round is.
        if method.base in RECOMMENDERS and not self.retrains(method):
            own = []
        if method.capabilities.limits or self.limits:  # whose excess is recorded for all methods
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
        adapts = method.reranker is not None or method.capabilities.limits
        return self.retrain is Retrain.ALL or (self.retrain is Retrain.RERANKERS and adapts)

    def run(
        self,
        methods: Sequence[NamedMethod],
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
        in_order = sorted(methods, key=lambda one: longest_first(one.method))
        tasks = [self.task(one, seed) for one in in_order for seed in seeds]
        # Before anything is trained: a folder with an unfinished run is refused at once.
        missing = [task for task in tasks if not task.is_finished()]
        unfinished = [task.record() for task in missing if task.record().has_started()]
        if unfinished and not resume:
            raise ConfigError(
                f"{unfinished[0].rows_file}: this run is not finished (--resume continues it, "
                "another --out starts again)"
            )
        for task in tasks:
            if task not in missing:
                on_run(task.record().stored_progress())
        # In waves: models of the second are made of those of the first.
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

    def _trainings(self, tasks: Sequence["LongTask"]) -> list[list[ModelTask | UserModelFit]]:
        """Of the models that are not there, first those that others start from.

        Methods behind re-rankers share theirs.
        """
        first: dict[Path, ModelTask | UserModelFit] = {}
        second: dict[Path, ModelTask | UserModelFit] = {}
        for task in tasks:
            file = self.study.model_file(task.named.method, task.seed)
            if not file.exists():
                method = task.named.method.trained
                model = self.study.build(method, task.seed)
                wave = second if model.prerequisites(self.study.dataset().split) else first
                wave[file] = ModelTask(Task(self.study, (method,), task.seed))
        third: list[ModelTask | UserModelFit] = []
        if tasks and self.simulation is not None:
            third.append(UserModelFit(self.user_source(), self.simulation))
        return [list(first.values()), list(second.values()), third]

    def user_source(self) -> UserSource:
        return UserSource(self.study, self.limits.item_table)

    def result(self, methods: Sequence[NamedMethod], seeds: Sequence[int]) -> LongTermResult:
        """All that a report reads of the runs on disk."""
        settings, steps = self.settings, self.steps(methods, seeds)
        ndcg, further = self.ndcg_of_users(methods, seeds), self.limits.bound(*self._limited())
        main = self.limits.main_limit(self.study.data, settings)
        return LongTermResult(
            steps,
            self.counts(methods, seeds),
            settings.alpha_prime,
            settings.warm_up,
            tuple(run_summaries(steps)),
            tuple(limit_summaries(steps, settings.warm_up, further)),
            self.study.data.group_name,
            settings.labels,
            settings.lag,
            self.description(),
            tuple(differences(methods[0].label, ndcg, seeds)),
            tuple(run_limit_rows(steps, settings.warm_up, main, further)),
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

    def steps_done(self, methods: Sequence[NamedMethod], seeds: Sequence[int]) -> int:
        """Of all runs together, as far as they are on disk."""
        return sum(len(self.task(one, n).record().frame()) for one in methods for n in seeds)

    def steps(self, methods: Sequence[NamedMethod], seeds: Sequence[int]) -> pl.DataFrame:
        """A row per method, seed and step."""
        frames = [self.task(one, seed).record().frame() for one in methods for seed in seeds]
        return pl.concat([pl.DataFrame(schema=SCHEMA), *frames])

    def counts(
        self, methods: Sequence[NamedMethod], seeds: Sequence[int]
    ) -> dict[tuple[str, int], CountsOverTime]:
        """Exposure over time by method and seed."""
        runs = {(one.label, n): self.task(one, n).record() for one in methods for n in seeds}
        counts = {run: record.counts() for run, record in runs.items()}
        return {run: values for run, values in counts.items() if values is not None}

    def ndcg_of_users(
        self, methods: Sequence[NamedMethod], seeds: Sequence[int]
    ) -> dict[str, list[NDArray[np.float64]]]:
        """By method, of each seed; without methods that one of the runs does not have it of."""
        found = {
            one.label: [self.task(one, seed).record().of_users("ndcg") for seed in seeds]
            for one in methods
        }
        known = {label: [one for one in runs if one is not None] for label, runs in found.items()}
        return {label: runs for label, runs in known.items() if len(runs) == len(seeds)}


@dataclass(frozen=True)
class LongTask:
    """One method, one seed, all steps; on from its checkpoint, where a run or a worker ended."""

    long_study: LongStudy
    named: NamedMethod
    seed: int

    def prepare(self) -> None:
        self.long_study.study.dataset()

    def record(self) -> StepRecord:
        key = self.long_study.key(self.named.method, self.seed)
        folder = self.long_study.study.folder / "steps"
        return StepRecord(folder, self.named.label, self.seed, key)

    def is_finished(self) -> bool:
        return self.record().is_finished(self.long_study.settings.steps)

    def rows(self) -> Iterator[RunProgress]:
        """How far it is at every writing; at the last step with the remarks of all steps."""
        record, settings = self.record(), self.long_study.settings
        # A worker that was killed may have left drafts of files behind.
        record.sweep()
        run, remarks = self._begin()
        if not record.restore(run):
            record.look(run.exposure)
        while record.step < settings.steps:
            with warnings.catch_warnings(record=True) as notes:
                warnings.simplefilter("always")
                record.add(run.step())
            remarks += [str(note.message) for note in notes]
            if record.step == settings.steps:
                break
            if record.step % EVERY == 0:
                record.look(run.exposure)
            # Between two updates the method holds steps that it has not learned from, which a
            # checkpoint does not have.
            waiting = record.step % settings.update_every != 0  # to be learned from
            if record.keep(None if waiting else run.tensors):
                yield record.progress()
        record.finish(run)
        yield record.progress([*remarks, *run.recommender.remarks])

    def _begin(self) -> tuple[LongRun, list[str]]:
        """The run before its first step, and the remarks on its model."""
        study, dataset = self.long_study.study, self.long_study.study.dataset()
        model, _ = Task(study, (self.named.method,), self.seed).trained(dataset)
        run = self._run(model, self.seed, self.long_study.simulation)
        self._pretrain(model, run.recommender)
        return run, [*model.remarks_]

    def _run(
        self,
        model: Recommender,
        seed: int,
        simulation: SimulationConfig | None,
        *,
        pretraining: bool = False,
    ) -> LongRun:
        """A run of the model before its first step; the seed is of users and server.

        A pretraining run serves the users for practice alone; nothing is learned before its end.
        """
        long_study, method = self.long_study, self.named.method
        study, settings, dataset = long_study.study, long_study.settings, long_study.study.dataset()
        further = long_study.limits.steps(study.data, study.cache_dir, settings)
        main = long_study.limits.main(model.alpha_prime, settings)
        server = model.online(
            [main, *further] if model.capabilities.limits else [],
            list_length=settings.list_length,
            round_length=long_study.round_length,
            retrain_on=dataset.split if long_study.retrains(method) else None,
            learn=not pretraining and model.capabilities.learns,
            seed=self.seed,
            kinds=long_study.kinds_for(model),
        )
        users = long_study.user_source().users(simulation, server.queue_length, seed)
        fixed = dataset.sensitive if study.data.group_column is not None else None
        # A copy, as the exposure keeps and compares the group that it is given.
        grouping = None if fixed is None else lambda _: fixed.copy()
        exposure = Exposure(dataset.split.train.item_counts(), grouping, settings.lag)
        activity = by_activity(torch.from_numpy(dataset.split.train.user_counts()))
        practice = practice_users(users.n_users)
        # Users for practice alone; the run that counts leaves them out of its figures.
        if pretraining:
            served = practice.nonzero().squeeze(1)
            return LongRun(server, users, exposure, settings, further, served=served)
        can_leave = simulation is not None and simulation.churn is not None
        return LongRun(
            server, users, exposure, settings, further, activity, practice if can_leave else None
        )

    def _pretrain(self, model: Recommender, server: OnlineRecommender) -> None:
        """Let a method that learns from responses do so before the run that counts.

        Pretraining runs are recorded among simulated users under the same limits, each served by
        what was learned in those before. Their users are for practice and count in no figure, and
        what is learned knows no user and no item by name. Users of a log would be the test itself.
        """
        learner, simulation = learner_of(server), self.long_study.simulation
        if simulation is None or learner is None:
            return
        kinds = self.long_study.user_source().kinds(simulation.churn)
        learner.kinds = kinds
        folder = self.long_study.study.folder / "models"
        file = folder / f"pretrained-{self.record().name}.safetensors"
        try:
            learner.restore(load_model(file, PRETRAINED)[0])
            return
        except ModelError:
            pass  # not learned yet
        for number in range(1, learner.pretraining_runs + 1):
            # Other users' answers and other noise than in the run that counts.
            run = self._run(model, self.seed + SEEDS_APART * number, simulation, pretraining=True)
            own = learner_of(run.recommender)
            assert own is not None
            own.kinds = kinds
            if number > 1:
                own.restore(learner.tensors())
            while not run.finished:
                run.step()
            own.learn()
            learner.restore(own.tensors())
        save_model(
            file, PRETRAINED, learner.tensors(), {"pretraining_runs": learner.pretraining_runs}
        )


def learner_of(server: OnlineRecommender) -> ResponseLearner | None:
    """What learns from responses in a method that does."""
    match server:
        case OnlineFcpo():
            return server.retention
        case OnlineControlled():
            return server.likes
    return None
