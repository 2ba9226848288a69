"""Many methods and seeds on one data set: every result kept, none computed twice."""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.splits import Split
from fairhorizon.datasets import (
    Dataset,
    DataSpec,
    early_fingerprints,
    key_of,
    open_dataset,
    open_earlier_part,
)
from fairhorizon.errors import ConfigError, FairHorizonError, ModelError
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.files import write_atomically, write_json
from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.limits.supported import check_supported
from fairhorizon.methods import (
    RECOMMENDERS,
    Method,
    build,
    has_settings,
    load_method,
    longest_first,
    validates,
)
from fairhorizon.parallel.engine import HERE, TaskEngine
from fairhorizon.rankers import RANKERS
from fairhorizon.recommenders.base import Fitted, Levels, LogPart, Recommender
from fairhorizon.recommenders.progress import LimitNotKeptWarning
from fairhorizon.rerank import RERANKERS
from fairhorizon.settings import Given, SettingsError
from fairhorizon.studies.rows import LimitRow, StudyRow, TrainingRow, study_row
from fairhorizon.vocabulary import Mode, Protocol


@dataclass(frozen=True)
class Study:
    """Where results are kept and how they are computed, for all methods and seeds alike.

    `settings` holds those of a ranker, a re-ranker or an agent under its name.
    """

    folder: Path
    data: DataSpec
    protocol: Protocol = Protocol.STANDARD
    mode: Mode = Mode.ONE_SHOT
    ks: tuple[int, ...] = (5, 10, 20)
    settings: Mapping[str, Given] = field(default_factory=dict)
    cache_dir: Path | None = None
    counting: Limit | None = None  # how the share of a level is counted; None: showings alike
    limits: tuple[ResolvedLimit, ...] = ()  # of methods that have no level and keep them

    def __post_init__(self) -> None:
        unknown = sorted(name for name in self.settings if not has_settings(name))
        if unknown:
            known = ", ".join((*RANKERS, *RERANKERS, *RECOMMENDERS))
            raise ConfigError(f"settings of {unknown[0]!r}: there is none (there are {known})")

    def dataset(self) -> Dataset:
        return open_dataset(self.data, self.cache_dir)

    def given(self, method: Method) -> dict[str, Any]:
        """The settings of a method; what validates under a protocol does so under this one."""
        given = dict(self.settings.get(method.settings_name, {}))
        if validates(method):
            given.setdefault("protocol", self.protocol.value)
        if method.reranker is not None and method.reranker in self.settings:
            given[method.reranker] = self.settings[method.reranker]
        return given

    def build(self, method: Method, seed: int) -> Recommender:
        try:
            return build(method, self.given(method), seed)
        except SettingsError as error:
            raise SettingsError(f"{method}: {error}") from None

    def check(self, methods: Sequence[Method]) -> None:
        """Refuse settings that no run could do with."""
        for method in methods:
            model = self.build(method, seed=0)
            is_served = method.level is not None and method.capabilities.levels is Levels.SERVED
            if is_served and model.capabilities.levels is not Levels.SERVED:
                raise SettingsError(
                    f"{method}: with these settings of {method.base} a model is trained for one "
                    f"level (take them for {method.base}:paper, or leave out those that differ "
                    "from the preset)"
                )
            model.check_length(max(self.ks))

    def served(self, method: Method, trained: Recommender) -> Recommender:
        """The method from its trained part: behind its re-ranker, or at its level."""
        model = trained
        if method != method.trained:
            model = trained.as_served_by(self.build(method, trained.seed))
            if self.counting is not None:
                model = served_under(model, self.counting, method.level)
        limits = self._limits_of(method)
        return model.with_limits(limits) if limits else model

    def _limits_of(self, method: Method) -> tuple[ResolvedLimit, ...]:
        if not self.limits or method.level is not None:
            return ()
        return all_or_none(self.build(method, seed=0), self.limits, self.dataset().sensitive)

    def early(self) -> Split:
        """The training log with test and validation items of its own."""
        return open_earlier_part(self.data, self.cache_dir)

    def model_file(self, method: Method, seed: int, *, early: bool = False) -> Path:
        """Of the trained part; `early`: of one that was fitted on the early split."""
        trained = method.trained
        name = trained.file_name
        parts: list[object] = [self.build(trained, seed).all_settings()]
        if early:
            name += "-early"
            parts += early_fingerprints(self.data, self.cache_dir)
        return self.folder / "models" / f"{name}-seed{seed}-{self.key(*parts)}.safetensors"

    def row_file(self, method: Method, seed: int) -> Path:
        parts = [self.build(method, seed).all_settings(), self.protocol, self.mode, list(self.ks)]
        parts += [] if self.counting is None else [str(self.counting)]
        key = self.key(*parts, *map(fingerprint, self._limits_of(method)))
        return self.folder / "rows" / f"{method.file_name}-seed{seed}-{key}.json"

    def key(self, *parts: object) -> str:
        """The same for the same data, settings and version, and for nothing else."""
        return key_of(self.data, self.cache_dir, *parts)

    def row(self, method: Method, seed: int) -> StudyRow | None:
        """A result that is there already, and whole."""
        file = self.row_file(method, seed)
        try:
            # Both files have to be whole; a memory map reads no more than the header.
            np.load(file.with_suffix(".npy"), mmap_mode="r")
            return StudyRow.from_json(json.loads(file.read_text(encoding="utf-8")))
        except (FileNotFoundError, EOFError, ValueError):
            return None

    def made(self, method: Method, seed: int) -> StudyRow:
        """A result that must be there."""
        row = self.row(method, seed)
        if row is None:
            raise ValueError(f"{method} has not been run with seed {seed}")
        return row

    def lists(self, method: Method, seed: int) -> NDArray[np.int64]:
        """The lists that a result was computed from."""
        lists: NDArray[np.int64] = np.load(self.row_file(method, seed).with_suffix(".npy"))
        return lists

    def run(
        self,
        methods: Sequence[Method],
        seeds: Sequence[int],
        *,
        engine: TaskEngine = HERE,
        on_row: Callable[[StudyRow], object] = lambda _: None,
    ) -> None:
        """Compute every missing result; `on_row` is called with each, stored ones included.

        An interrupted run keeps what is finished, and the next one continues from there.
        """
        for row in engine.each(self.tasks(methods, seeds, on_row)):
            on_row(row)

    def tasks(
        self,
        methods: Sequence[Method],
        seeds: Sequence[int],
        on_row: Callable[[StudyRow], object],
    ) -> "list[Task]":
        """The tasks that are left, longest first; `on_row` is called with the stored results."""
        tasks = []
        for trained in sorted({method.trained for method in methods}, key=longest_first):
            for seed in seeds:
                own = {one: self.row(one, seed) for one in methods if one.trained == trained}
                for row in own.values():
                    if row is not None:
                        on_row(row)
                if missing := tuple(method for method, row in own.items() if row is None):
                    tasks.append(Task(self, missing, seed))
        return tasks


@dataclass(frozen=True)
class Task:
    """Methods that share what is trained, under one seed.

    `early`: what is trained sees the first part of the training log alone.
    """

    study: Study
    methods: tuple[Method, ...]
    seed: int
    early: bool = False

    def prepare(self) -> None:
        self.study.dataset()

    def rows(self) -> Iterator[StudyRow]:
        dataset = self.study.dataset()
        part, seconds = self.part(dataset)
        for method in self.methods:
            yield self.evaluate(method, part, dataset, seconds)

    def trained(self, dataset: Dataset) -> tuple[Recommender, float]:
        """The first of the methods, ready to serve; and how long its training took."""
        part, seconds = self.part(dataset)
        return self.study.served(self.methods[0], part), seconds

    def part(self, dataset: Dataset) -> tuple[Recommender, float]:
        """The trained part, from its file if that is whole; and how long its training took."""
        file = self.study.model_file(self.methods[0], self.seed, early=self.early)
        card = file.with_suffix(".json")
        try:
            return load_method(file), json.loads(card.read_text(encoding="utf-8"))["seconds"]
        except (ModelError, FileNotFoundError, ValueError):
            # Not trained yet, or by a process that was killed.
            pass
        model = self.study.build(self.methods[0].trained, self.seed)
        begin = time.perf_counter()
        try:
            parts = self.study.early() if self.early else dataset.split
            fitted = self._prerequisites(model, dataset)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LimitNotKeptWarning)  # a note of every row
                model.fit(parts, sensitive=dataset.sensitive, fitted=fitted)
        except FairHorizonError as error:
            raise FairHorizonError(f"{self.methods[0].trained}: {error}") from error
        seconds = time.perf_counter() - begin
        model.save(file)
        write_json(card, {"seconds": seconds, **model.description()})
        # Read back, so that a result never depends on whether the model was trained or loaded.
        return load_method(file), seconds

    def _prerequisites(self, model: Recommender, dataset: Dataset) -> Fitted:
        """The rankers that it is made of as the study has them, unless their settings differ.

        A ranker that cannot be fitted is left out; the model then warns about it.
        """
        fitted = {}
        for need in model.prerequisites(dataset.split):
            # With settings of its own the ranker is another one than the method would fit.
            if need.method in self.study.settings:
                continue
            early = need.part is LogPart.EARLIER
            task = Task(self.study, (Method.parse(need.method),), self.seed, early)
            with suppress(FairHorizonError):
                ranker = task.part(dataset)[0].ranker
                if ranker is not None:
                    fitted[need] = ranker
        return fitted

    def evaluate(
        self, method: Method, part: Recommender, dataset: Dataset, fit_seconds: float
    ) -> StudyRow:
        """The result of a method from its trained part, kept."""
        study, model = self.study, self.study.served(method, part)
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            result = evaluate(
                model,
                dataset.split,
                ks=study.ks,
                protocol=study.protocol,
                mode=study.mode,
                sensitive=dataset.sensitive,
            )
        row = study_row(
            result,
            method=str(method),
            settings=model.all_settings(),
            seconds={"fit": fit_seconds, "evaluate": time.perf_counter() - begin},
            notes=(*model.remarks_, *(str(note.message) for note in notes)),
            keeps_limit=model.keeps_limit_,
        )
        file = study.row_file(method, self.seed)
        # The row comes last: it says that the result is finished.
        write_atomically(file.with_suffix(".npy"), lambda draft: save_lists(draft, result.lists))
        write_json(file, row.to_json())
        return row


@dataclass(frozen=True)
class ModelTask:
    """A model to be trained and stored for later tasks."""

    task: Task

    def prepare(self) -> None:
        self.task.prepare()

    def rows(self) -> Iterator[TrainingRow]:
        _, seconds = self.task.trained(self.task.study.dataset())
        yield TrainingRow(f"{self.task.methods[0]} seed {self.task.seed}", seconds)


def served_under(model: Recommender, counting: Limit, share: float | None) -> Recommender:
    """The fitted model at this share of its own group, counted as by the limit."""
    limit = counting if share is None else replace(counting, share=share)
    return model.with_limits([ResolvedLimit(limit, model.sensitive_.cpu().numpy())])


def all_or_none(
    model: Recommender, limits: Sequence[ResolvedLimit], group: NDArray[np.bool_]
) -> tuple[ResolvedLimit, ...]:
    """The limits, if lists of the model, which need not be fitted, can be made under all of them.

    group: (n_items,) that it is fitted for.
    """
    try:
        check_supported(model.method, model.supported_limits, limits, group)
    except ConfigError:
        return ()
    return tuple(limits)


def fingerprint(bound: ResolvedLimit) -> list[str]:
    """The same for the same limit on the same items."""
    return [str(bound), hashlib.sha256(bound.members.tobytes()).hexdigest()[:16]]


def save_lists(path: Path, lists: NDArray[np.int64]) -> None:
    """To a file of any name; NumPy by itself would add a suffix."""
    with path.open("wb") as file:
        np.save(file, lists)


def study_limits(study: Study, methods: Sequence[Method], seeds: Sequence[int]) -> list[LimitRow]:
    """The limits of a study, measured on its lists; all results must be there."""
    return [
        limit_row(study, str(method), [method] * len(seeds), seeds, one)
        for one in study.limits
        for method in methods
    ]


def limit_row(
    study: Study, name: str, settings: Sequence[Method], seeds: Sequence[int], bound: ResolvedLimit
) -> LimitRow:
    """settings: the method with its level, by seed."""
    found = []
    for method, seed in zip(settings, seeds, strict=True):
        prices = _prices(study, method, seed, bound.limit)
        found.append(limit_reached(bound, study.lists(method, seed), prices))
    return LimitRow.from_seeds(name, seeds, found)


def _prices(study: Study, method: Method, seed: int, limit: Limit) -> Mapping[str, float]:
    """The prices of a result; a level is called that of popular items whatever the group is."""
    prices = study.made(method, seed).prices
    level = str(Limit.popular(limit.share))
    if limit.is_plain and not limit.is_floor and limit.group == study.data.limited_group:
        return {**prices, str(limit): prices[level]} if level in prices else prices
    return prices
