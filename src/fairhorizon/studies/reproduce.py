"""Everything that the paper shows, computed here: what is run for each part, and its rows.

Table 1 and the example of the introduction take no time. Tables and figures of lists (Table 2,
Figure 3) share one study under the paper's protocol; Figure 4 is a long run under the standard one,
as no system shows people again what they have taken. Models and results are kept in the folder of
the study, so an interrupted run goes on where it was.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from fairhorizon.data.splits import Statistics, statistics
from fairhorizon.datasets import DataSpec
from fairhorizon.evaluation.long_term import LongRunSettings
from fairhorizon.fcpo.config import PRESETS
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.files import write_json
from fairhorizon.methods import Method
from fairhorizon.metrics.spread import Spread
from fairhorizon.parallel.engine import HERE, TaskEngine
from fairhorizon.recommenders.base import Recommender
from fairhorizon.settings import changed
from fairhorizon.studies.compare import PAPER_NAMES
from fairhorizon.studies.efficiency import LENGTH, EfficiencyRow, efficiency
from fairhorizon.studies.long_results import LongTermResult
from fairhorizon.studies.long_term import LongStudy, NamedMethod
from fairhorizon.studies.rows import StudyRow, SummaryRow, TrainingRow, summary_row
from fairhorizon.studies.six_items import Learning, SixItems, SixItemsRow, fcpo_row, rivals
from fairhorizon.studies.study import ModelTask, Study, Task
from fairhorizon.vocabulary import Labels, Mode, PaperPart, Protocol

BASELINES = ("mf", "bpr", "ncf", "lird", "mf+foe", "bpr+foe", "ncf+foe")
POLICIES = tuple(f"fcpo:{preset}" for preset in ("paper", "tuned") if preset in PRESETS)
ALPHA_PRIMES = (1.0, 0.8, 0.4)  # of FCPO-1, -2 and -3
# what the three reached in the paper at K = 20, rounded down
RATES = {"ml-100k": (0.85, 0.65, 0.36), "ml-1m": (0.91, 0.71, 0.61)}
LONG_LIMIT = 0.4
LONG_RIVALS = ("mf", "mf+foe", "mf+control", "bpr+control", "ncf+control")
# of the example of the introduction, which takes little time
LIMITS_OF_SIX, SEEDS_OF_SIX = (0.2, 0.3, 0.4), 3
# found by `fairhorizon tune` on validation items of MovieLens-100K under the paper's protocol
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "mf": {"dim": 26, "learning_rate": 0.0063291615579940215, "l2": 0.004699014941690232},
    "ncf": {
        "dim": 37,
        "negatives": 1,
        "learning_rate": 0.009421626790665516,
        "l2": 0.03988870792682396,
    },
}
QUICK: Mapping[str, Mapping[str, Any]] = {
    "mf": {"max_epochs": 20},
    "bpr": {"max_epochs": 20},
    "ncf": {"max_epochs": 3},
    "lird": {"rounds": 2},
    "fcpo": {"rounds": 4},
}
QUICK_LEARNING = Learning(rounds=30)


# ---- How a policy serves -------------------------------------------------------------------------
@dataclass(frozen=True)
class Serving:
    """How a policy that was trained serves; nothing is trained for it."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # of fcpo


AS_TRAINED = Serving("")  # as the settings of the preset say
BY_LEARNING_ALONE = Serving("control=off", {"control": False})
# Of a policy that was trained without a limit: the control keeps it, as behind a ranker.
BY_CONTROL_ALONE = Serving("trained without a limit", {"alpha_prime": LONG_LIMIT})


def servings(preset: str) -> tuple[Serving, Serving]:
    """As a preset serves, and the other one of a sampled W and its mean."""
    other = "sample" if PRESETS[preset].serve == "mean" else "mean"
    return AS_TRAINED, Serving(other, {"serve": other})


@dataclass(frozen=True)
class ServedStudy(Study):
    """A study whose policies serve in another way than their settings say.

    Models are those of the study without it; results have files of their own.
    """

    serving: Serving = AS_TRAINED

    def key(self, *parts: object) -> str:
        own = [dict(self.serving.settings)] if self.serving.settings else []
        return super().key(*parts, *own)

    def model_file(self, method: Method, seed: int, *, early: bool = False) -> Path:
        plain = self.as_served(AS_TRAINED)
        return Study.model_file(plain, method, seed, early=early)

    def served(self, method: Method, trained: Recommender) -> Recommender:
        model = super().served(method, trained)
        if isinstance(model, Fcpo) and self.serving.settings:
            model = copy.copy(model)
            model.config = changed(model.config, self.serving.settings)
        return model

    def as_served(self, serving: Serving) -> "ServedStudy":
        return replace(self, serving=serving)


# ---- Rows ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TableRow:
    """A row of Table 2: what it is called in the paper, and what came of it here."""

    paper: str  # as "MF-FOE" or "FCPO-1"
    result: SummaryRow
    serving: str = ""  # of a policy: mean or sample, where it was trained to serve the other one

    def to_json(self) -> dict[str, Any]:
        return {"paper": self.paper, "serving": self.serving, **self.result.to_json()}


@dataclass(frozen=True)
class Reproduced:
    """What was computed; None or empty for parts that were not asked for."""

    dataset: str
    seeds: int
    quick: bool
    statistics: Statistics | None = None
    table: tuple[TableRow, ...] = ()
    long_run: LongTermResult | None = None
    efficiency: tuple[EfficiencyRow, ...] = ()
    six_items: tuple[SixItemsRow, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "seeds": self.seeds,
            "quick": self.quick,
            "table1": None if self.statistics is None else asdict(self.statistics),
            "table2": [row.to_json() for row in self.table],
            "figure4": None if self.long_run is None else self.long_run.to_json(),
            "efficiency": [row.to_json() for row in self.efficiency],
            "introduction": [row.to_json() for row in self.six_items],
        }


# ---- The study -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class PaperStudy:
    """Where results are kept, and what is run.

    seeds: how many. quick: trainings and runs cut short, to see that everything works.
    """

    folder: Path
    data: DataSpec
    seeds: int = 1
    quick: bool = False
    cache_dir: Path | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # in place of ours

    @cached_property
    def _settings(self) -> dict[str, dict[str, Any]]:
        sources = (SETTINGS, QUICK if self.quick else {}, self.settings)
        names = {name for source in sources for name in source}
        return {
            name: {key: value for one in sources for key, value in one.get(name, {}).items()}
            for name in sorted(names)
        }

    def lists(self, mode: Mode = Mode.ONE_SHOT, serving: Serving = AS_TRAINED) -> ServedStudy:
        """The study of Table 2."""
        n_items = self._plain.dataset().log.n_items
        ks = tuple(k for k in (5, 10, 20) if k <= n_items)
        return replace(self._plain, mode=mode, ks=ks, serving=serving)

    @property
    def _plain(self) -> ServedStudy:
        return ServedStudy(
            self.folder,
            self.data,
            Protocol.PAPER,
            settings=self._settings,
            cache_dir=self.cache_dir,
        )

    def long(self, serving: Serving = AS_TRAINED) -> LongStudy:
        """The study of Figure 4: labels count as they are at the moment, as in the paper."""
        n_items = self._plain.dataset().log.n_items
        steps = min(100 if self.quick else 400, n_items // 2)
        study = replace(self._plain, protocol=Protocol.STANDARD, ks=(1,), serving=serving)
        settings = LongRunSettings(
            steps=steps, alpha_prime=LONG_LIMIT, labels=Labels.MOMENT, warm_up=steps // 8
        )
        return LongStudy(study, settings, round_length=max(1, steps // 4))

    # ---- What is run
    @property
    def policies(self) -> list[tuple[str, Method]]:
        """Each policy by its name in the paper: at the paper's alpha', then at its rates."""
        rates = () if self.quick else RATES.get(self.data.source, RATES["ml-100k"])
        levels = [*enumerate(ALPHA_PRIMES, 1), *enumerate(rates, 1)]
        return [
            (f"FCPO-{number}", Method.parse(name).limited_to(level))
            for name in POLICIES
            for number, level in levels
        ]

    @property
    def baselines(self) -> list[tuple[str, Method]]:
        return [(PAPER_NAMES[name], Method.parse(name)) for name in BASELINES]

    def rows_of_table(self) -> list[tuple[str, Method, ServedStudy]]:
        """Every row of Table 2: its name in the paper, the method, and how it is evaluated.

        What users like changes only the lists of LIRD and FCPO, which are evaluated both ways.
        """
        rows = [(name, method, self.lists()) for name, method in self.baselines]
        rows += [
            (name, method, self.lists(Mode.INTERACTIVE))
            for name, method in self.baselines
            if name == "LIRD"
        ]
        rows += [
            (name, method, self.lists(mode, serving))
            for name, method in self.policies
            for mode in Mode
            for serving in servings(method.preset or "")
        ]
        return rows

    def long_runs(self) -> list[tuple[NamedMethod, LongStudy]]:
        """Every run of Figure 4: MF and its rivals, then each policy in three ways.

        Trained for the limit, under the control and by learning alone; and trained without a limit,
        under the control, as the rankers behind it are.
        """
        runs = [
            (NamedMethod.at_limit(Method.parse(name), LONG_LIMIT), self.long())
            for name in LONG_RIVALS
        ]
        for name in POLICIES:
            ways = (
                (LONG_LIMIT, AS_TRAINED),
                (LONG_LIMIT, BY_LEARNING_ALONE),
                (1.0, BY_CONTROL_ALONE),
            )
            for level, serving in ways:
                label = f"{name}, {serving.name}" if serving.name else name
                method = Method.parse(name).limited_to(level)
                runs.append((NamedMethod(label, method), self.long(serving)))
        return runs

    def run(
        self,
        parts: Sequence[PaperPart] = tuple(PaperPart),
        *,
        engine: TaskEngine = HERE,
        on_line: Callable[[str], object] = lambda _: None,
    ) -> Reproduced:
        """Compute what is missing of these parts; `on_line` is told of everything that is done."""
        shows_lists = {PaperPart.TABLE2, PaperPart.FIGURE3} & set(parts)
        shows_runs = PaperPart.FIGURE4 in parts
        seeds = range(self.seeds)
        six = self._six_items(engine, on_line) if PaperPart.INTRODUCTION in parts else ()
        if {*parts} == {PaperPart.INTRODUCTION}:
            return Reproduced(self.data.source, self.seeds, self.quick, six_items=six)
        # It is timed on one core, so nothing else may run meanwhile.
        times = self._efficiency(on_line) if PaperPart.EFFICIENCY in parts else ()
        self._train(bool(shows_lists), shows_runs, engine, on_line)
        table: tuple[TableRow, ...] = ()
        if shows_lists:
            table = self._table(seeds, engine, on_line)
        return Reproduced(
            self._plain.dataset().log.name,
            self.seeds,
            self.quick,
            statistics(self._plain.dataset().log) if PaperPart.TABLE1 in parts else None,
            table,
            self._long_results(seeds, engine, on_line) if shows_runs else None,
            times,
            six,
        )

    def _train(
        self, lists: bool, runs: bool, engine: TaskEngine, on_line: Callable[[str], object]
    ) -> None:
        """Every model that is missing, once: several rows are of the same."""
        wanted: dict[Path, Task] = {}
        needed: list[tuple[Method, Study]] = []
        if lists:
            chosen = (*self.baselines, *self.policies)
            needed += [(method, self.lists()) for _, method in chosen]
        if runs:
            needed += [(named.method, self.long().study) for named, _ in self.long_runs()]
        for method, study in needed:
            for seed in range(self.seeds):
                file = study.model_file(method, seed)
                if not file.exists():
                    wanted.setdefault(file, Task(study, (method.trained,), seed))
        # FCPO first: what is slow must not start last.
        tasks = sorted(wanted.values(), key=lambda task: task.methods[0].base != "fcpo")
        total = len(tasks)
        rows: Iterator[TrainingRow] = engine.each([ModelTask(task) for task in tasks])
        for done, row in enumerate(rows, 1):
            on_line(f"{done}/{total}  {row.name} trained in {row.seconds:.0f} s")

    def _table(
        self, seeds: Sequence[int], engine: TaskEngine, on_line: Callable[[str], object]
    ) -> tuple[TableRow, ...]:
        wanted = self.rows_of_table()
        missing = [
            Task(study, (method,), seed)
            for _, method, study in wanted
            for seed in seeds
            if study.row(method, seed) is None
        ]
        for done, row in enumerate(engine.each(missing), 1):
            on_line(f"{done}/{len(missing)}  {_line_of(row)}")
        return tuple(
            TableRow(
                name,
                summary_row(
                    [study.made(method, seed) for seed in seeds],
                    name=method.name,
                    level=method.level,
                ),
                study.serving.name,
            )
            for name, method, study in wanted
        )

    def _long_results(
        self, seeds: Sequence[int], engine: TaskEngine, on_line: Callable[[str], object]
    ) -> LongTermResult:
        """The runs of all studies as one result."""
        runs = self.long_runs()
        tasks = [study.task(named, seed) for named, study in runs for seed in seeds]
        missing = [task for task in tasks if not task.is_finished()]
        for progress in engine.each(missing):
            step = f"step {progress.step}/{self.long().settings.steps}"
            on_line(f"{progress.method} seed {progress.seed}: {step}")
        first = runs[0][1]
        return join_runs(
            [study.result([named], seeds) for named, study in runs], first.settings.alpha_prime
        )

    def _efficiency(self, on_line: Callable[[str], object]) -> tuple[EfficiencyRow, ...]:
        file = self._file("efficiency", self.quick)
        if (content := _content(file)) is None:
            dataset = self._plain.dataset()
            rows = efficiency(
                dataset,
                length=min(LENGTH, dataset.log.n_items),
                repeats=1 if self.quick else 3,
                on_row=lambda row: on_line(f"{row.method}: {row.seconds.mean:.2f} s"),
            )
            write_json(file, [asdict(row) for row in rows])
            return tuple(rows)
        return tuple(
            EfficiencyRow(
                **row
                | {"protocol": Protocol(row["protocol"]), "mode": Mode(row["mode"])}
                | {"seconds": Spread(**row["seconds"])}
            )
            for row in content
        )

    def _six_items(
        self, engine: TaskEngine, on_line: Callable[[str], object]
    ) -> tuple[SixItemsRow, ...]:
        learning = QUICK_LEARNING if self.quick else Learning()
        seeds = self.seeds if self.quick else max(self.seeds, SEEDS_OF_SIX)
        worlds = [SixItems(alpha_prime=share) for share in LIMITS_OF_SIX]
        tasks = [
            SixItemsTask(self.folder, world, seed, learning)
            for world in worlds
            for seed in range(seeds)
        ]
        learned: dict[float, list[SixItemsRow]] = {}
        for row in engine.each(tasks):
            learned.setdefault(row.alpha_prime, []).append(row)
            on_line(f"six items at {row.alpha_prime:g}: {row.policy} seed {row.seed}")
        rows: list[SixItemsRow] = []
        for world in worlds:
            own = sorted(learned[world.alpha_prime], key=lambda row: row.seed or 0)
            *others, best = rivals(world)
            rows += [*others, *own, best]
        return tuple(rows)

    def _file(self, name: str, *parts: object) -> Path:
        return self.folder / "rows" / f"{name}-{self._plain.key(name, *parts)}.json"


@dataclass(frozen=True)
class SixItemsTask:
    """FCPO on the six items under one seed, kept."""

    folder: Path
    world: SixItems
    seed: int
    learning: Learning

    def prepare(self) -> None:
        return

    def rows(self) -> Iterator[SixItemsRow]:
        name = f"six-items-{self.world.alpha_prime:g}-seed{self.seed}-r{self.learning.rounds}"
        file = self.folder / "rows" / f"{name}.json"
        identity = {"world": asdict(self.world), "learning": asdict(self.learning)}
        # Through JSON, as the file was: tuples become lists.
        stated = json.loads(json.dumps(identity))
        content = _content(file)
        if content is not None and content["identity"] == stated:
            row = content["row"]
            tuples = {name: tuple(row[name]) for name in ("shares", "popular_so_far")}
            yield SixItemsRow(**row | tuples)
            return
        found = fcpo_row(self.world, self.seed, self.learning)
        write_json(file, {"identity": stated, "row": asdict(found)})
        yield found


def join_runs(results: Sequence[LongTermResult], alpha_prime: float) -> LongTermResult:
    """Results of several methods as one."""
    first = results[0]
    return replace(
        first,
        steps=pl.concat([one.steps for one in results]),
        counts={key: value for one in results for key, value in one.counts.items()},
        alpha_prime=alpha_prime,
        rows=tuple(row for one in results for row in one.rows),
        limits=(),
        differences=(),
        limit_rows=tuple(row for one in results for row in one.limit_rows),
    )


def _line_of(row: StudyRow) -> str:
    k = max(int(name.partition("@")[2]) for name in row.metrics if name.startswith("ndcg@"))
    found = row.metrics[f"ndcg@{k}"]
    value = "-" if found is None else f"{100 * found:.2f}"
    return f"{row.method} seed {row.seed}, {row.mode}: NDCG@{k} {value}"


def _content(file: Path) -> Any:
    """None where there is no whole file."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
