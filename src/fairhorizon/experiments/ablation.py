"""What each part of FCPO brings: the preset fast, and the same with one part changed."""

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairhorizon.agents.fcpo.config import PRESETS, FcpoConfig
from fairhorizon.agents.fcpo.learning.session import Session
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.methods import Method
from fairhorizon.agents.tasks import FitTask, Fitted, LogPart, Prerequisite
from fairhorizon.engines.engine import TaskEngine
from fairhorizon.engines.processes import HERE
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.experiments.course import figures, follow
from fairhorizon.experiments.datasets import Dataset
from fairhorizon.experiments.rows import study_row, summary_row
from fairhorizon.experiments.study import ModelTask, Study, Task
from fairhorizon.files import write_json
from fairhorizon.results.spread import Spread
from fairhorizon.results.studies import AblationRow, TrainingRow, VariantRow
from fairhorizon.settings import changed

# nobody stops early, so that all learn equally long, and nothing mends what a variant is to show
BASE = {"rounds": 30, "patience": 1000, "check_weights": False}
LEVEL_SETTINGS = ("alpha_prime", "training_limit")
WHOLE = "fast"  # the variant that the others are held against


@dataclass(frozen=True)
class Variant:
    """The whole with some settings changed, and what that means."""

    name: str
    meaning: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    equal_weights: bool = False  # begin with rankers that count the same


VARIANTS = (
    Variant(WHOLE, "nothing changed"),
    Variant("no-rounds", "the weighed rankers alone, nothing learned by CPO", {"rounds": 0}),
    Variant(
        "random-start",
        "a random policy over the embeddings of a PMF of interactions, no rankers; states are the "
        "last 5 items, as in the paper",
        {
            **{"warm_start": (), "starts": "anywhere", "history": 5},
            "pmf": {"target": "interaction"},
        },
    ),
    Variant(
        "gaussian",
        "weights are sampled, not items, and learned by the score function alone; served step by "
        "step at the price of the level",
        {"policy": "gaussian"},
    ),
    Variant(
        "no-all-actions",
        "immediate rewards and costs of the sampled items alone, not of all",
        {"all_actions": False},
    ),
    Variant("no-price", "the group of an item is none of its signals", {"group_price": False}),
    Variant(
        "seen-feedback",
        "episodes over interactions that the rankers were fitted on",
        {"starts": "seen"},
    ),
    Variant("equal-weights", "begins with rankers that count the same", equal_weights=True),
    Variant(
        "default-rankers",
        "all rankers, with their default settings, weighed by likelihood instead of by their lists",
        {"adapt": False},
    ),
)


@dataclass(frozen=True)
class VariantRun:
    """One variant under one seed: trained under the level as its limit, and served at it."""

    study: Study
    variant: Variant
    level: float
    seed: int

    @property
    def config(self) -> FcpoConfig:
        given = self.study.settings.get(Fcpo.method, {})
        base = changed(PRESETS[WHOLE], {**BASE, "protocol": self.study.protocol.value, **given})
        limits = dict.fromkeys(LEVEL_SETTINGS, self.level)
        return changed(base, {**self.variant.changes, **limits})

    @property
    def file(self) -> Path:
        study = self.study
        key = study.key(
            self.config.model_dump(mode="json"),
            *(self.variant.equal_weights, study.protocol, study.mode, list(study.ks)),
        )
        name = f"ablation-{self.variant.name}-seed{self.seed}-{key}.json"
        return study.folder / "rows" / name

    def row(self) -> VariantRow | None:
        """The result, if it is there already."""
        try:
            return VariantRow.from_json(json.loads(self.file.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return None

    def prepare(self) -> None:
        self.study.dataset()

    def rows(self) -> Iterator[VariantRow]:
        dataset = self.study.dataset()
        fitted = self.fitted(dataset)
        model = Fcpo(self.config, seed=self.seed)
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            session = self.start(model, dataset, fitted)
            course = follow(session)
            model.adopt(session.conclude())
            trained = time.perf_counter()
            result = evaluate(
                model,
                dataset.split,
                ks=self.study.ks,
                protocol=self.study.protocol,
                mode=self.study.mode,
                sensitive=dataset.sensitive,
            )
        measured = study_row(
            result,
            method=self.variant.name,
            settings=model.config.model_dump(mode="json"),
            seconds={"fit": trained - begin, "evaluate": time.perf_counter() - trained},
            notes=(*model.remarks_, *(str(note.message) for note in notes)),
            keeps_limit=model.keeps_limit_,
            metrics=figures(course),
        )
        row = VariantRow(measured, course)
        write_json(self.file, row.to_json())
        yield row

    def start(self, model: Fcpo, dataset: Dataset, fitted: Fitted) -> Session:
        """A training before its first round, its rankers weighed as the variant has them."""
        session = model.session(FitTask(dataset.split, dataset.sensitive, fitted))
        training = session.training
        if self.variant.equal_weights:
            assert training.panel is not None
            training.weigh((1.0,) * len(training.panel.rankers))
        elif model.config.policy == "gaussian":  # which by itself would not weigh its rankers
            softmax = Fcpo(changed(model.config, {"policy": "softmax"}), seed=self.seed)
            weighed = self.start(softmax, dataset, fitted).training.panel
            assert weighed is not None
            training.weigh(weighed.weights)
        return session

    def rankers(self) -> dict[Prerequisite, Task]:
        """The trainings of the rankers that it begins with and serves by."""
        model = Fcpo(self.config, seed=self.seed)
        return {
            need: Task(self.study, (Method(need.method),), self.seed, need.part is LogPart.EARLIER)
            for need in model.prerequisites(self.study.dataset().split)
        }

    def fitted(self, dataset: Dataset) -> Fitted:
        """The rankers of the whole log and those of its earlier part."""
        parts = {need: task.part(dataset)[0].ranker for need, task in self.rankers().items()}
        return {need: ranker for need, ranker in parts.items() if ranker is not None}


def check(study: Study, variants: Sequence[Variant], level: float) -> None:
    """Refuse settings that no variant could run with."""
    others = sorted(set(study.settings) - {Fcpo.method})
    if others:
        raise ConfigError(
            f"settings of {others[0]}: the variants are those of fcpo (give fcpo.key=value)"
        )
    given = study.settings.get(Fcpo.method, {})
    if not given.get("warm_start", True):
        raise ConfigError("fcpo.warm_start: only one variant is without (name a ranker or more)")
    fixed = sorted(set(given) & set(LEVEL_SETTINGS))
    if fixed:
        raise ConfigError(
            f"fcpo.{fixed[0]}: all variants have the same limit (give --alpha-prime instead)"
        )
    for variant in variants:
        _ = VariantRun(study, variant, level, 0).config


def run_ablation(
    study: Study,
    variants: Sequence[Variant],
    level: float,
    seeds: Sequence[int],
    *,
    engine: TaskEngine = HERE,
    on_ranker: Callable[[TrainingRow], object] = lambda _: None,
    on_row: Callable[[VariantRow], object] = lambda _: None,
) -> list[AblationRow]:
    """A summary per variant; missing results are computed, `on_row` is called with each.

    Rankers are fitted first, once for all variants. An interrupted run keeps what is
    finished, and the next one continues from there.
    """
    runs = [VariantRun(study, variant, level, seed) for variant in variants for seed in seeds]
    missing = []
    for run in runs:
        if (row := run.row()) is None:
            missing.append(run)
        else:
            on_row(row)
    tasks = {
        study.model_file(task.methods[0], task.seed, early=task.early): ModelTask(task)
        for run in missing
        for task in run.rankers().values()
    }
    rankers = [task for file, task in tasks.items() if not file.exists()]
    for fitted in engine.each(rankers):
        on_ranker(fitted)
    for row in engine.each(missing):
        on_row(row)
    return summaries(runs)


def summaries(runs: Sequence[VariantRun]) -> list[AblationRow]:
    """A row a variant: means and deviations over the seeds; all results must be there."""
    by_variant: dict[str, list[VariantRow]] = {}
    for run in runs:
        row = run.row()
        assert row is not None, f"{run.file} is gone"
        by_variant.setdefault(run.variant.name, []).append(row)
    meanings = {run.variant.name: run.variant.meaning for run in runs}
    ndcg = f"ndcg@{max(runs[0].study.ks)}"
    return [
        AblationRow(
            summary=summary_row([row.result for row in rows]),
            meaning=meanings[name],
            difference=_difference(rows, by_variant.get(WHOLE, rows), ndcg),
            courses=tuple(row.course for row in rows),
        )
        for name, rows in by_variant.items()
    ]


def _difference(
    rows: Sequence[VariantRow], whole: Sequence[VariantRow], metric: str
) -> Spread | None:
    """Of a variant to the whole, seed by seed; of the whole itself there is none."""
    if rows is whole:
        return None
    differences = []
    for row, other in zip(rows, whole, strict=True):
        own, theirs = row.result.metrics[metric], other.result.metrics[metric]
        if own is None or theirs is None:
            return None
        differences.append(own - theirs)
    return Spread.of(differences)
