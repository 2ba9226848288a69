"""A search for good settings: Optuna proposes, validation items decide, never the test items."""

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

import numpy as np

from fairhorizon import __version__
from fairhorizon.datasets import Dataset
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.short_term import validation_ndcg
from fairhorizon.files import write_atomically, write_json
from fairhorizon.methods import Method, MethodError, build, presets_of
from fairhorizon.parallel.engine import HERE, TaskEngine
from fairhorizon.recommenders.base import Recommender
from fairhorizon.settings import Choice, Given, Settings, searched
from fairhorizon.vocabulary import Mode, Protocol

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial
    from optuna.trial import Trial as OptunaTrial

METRIC = "validation_ndcg@20"
STUDY = "tune"  # its name in the file
IDENTITY = "of"  # the attribute of the study that identifies what it searches


class HasDataset(Interface):
    """Gives the same data in every process that it is sent to."""

    def dataset(self) -> Dataset: ...


@dataclass(frozen=True)
class Objective:
    """What is tuned on which data and how it is measured; `given` settings are not searched."""

    method: Method
    place: HasDataset
    protocol: Protocol = Protocol.STANDARD
    seed: int = 0
    given: Given = field(default_factory=dict)
    preset: str = "paper"  # of FCPO, where the method names none

    def __post_init__(self) -> None:
        if self.method.reranker is not None:
            raise MethodError(
                f"{self.method}: a re-ranker is not trained (tune {self.method.trained_name}, "
                f"then fit {self.method} with the settings found)"
            )

    @property
    def dataset(self) -> Dataset:
        return self.place.dataset()

    @property
    def method_with_preset(self) -> Method:
        """The method as it can be given to `fit`, whatever preset is the default there."""
        if self.preset not in presets_of(self.method.base):
            return self.method
        return replace(self.method, preset=self.method.preset or self.preset)

    def model(self, settings: Given) -> Recommender:
        given = merged(self.given, settings)
        return build(self.method_with_preset, given, self.seed)

    def value(self, settings: Given) -> float:
        """Validation NDCG@20 of the method fitted with the settings."""
        model = self.model(settings)
        model.fit(self.dataset.split, sensitive=self.dataset.sensitive)
        return validation_ndcg(model, self.dataset.split, self.protocol)

    def identity(self) -> dict[str, str]:
        """What trials of the same search have in common."""
        return {
            "method": str(self.method),
            "data": self.dataset.split.train.fingerprint(),
            "groups": hashlib.sha256(self.dataset.sensitive.tobytes()).hexdigest()[:16],
            "protocol": self.protocol.value,
            "seed": str(self.seed),
            "settings": json.dumps(self.model({}).all_settings(), sort_keys=True),
        }


@dataclass(frozen=True)
class TrialRow:
    """What came of it; without a value, why."""

    number: int
    value: float | None
    error: str = ""


@dataclass(frozen=True)
class TrialTask:
    """One proposal to be tried."""

    objective: Objective
    number: int  # from 0
    settings: Given

    def prepare(self) -> None:
        self.objective.place.dataset()

    def rows(self) -> Iterator[TrialRow]:
        try:
            yield TrialRow(self.number, self.objective.value(self.settings))
        except ConfigError as error:
            yield TrialRow(self.number, None, str(error))


@dataclass(frozen=True)
class Trial:
    """One proposal and its result."""

    number: int  # from 1
    settings: dict[str, Any]  # by dotted name: those that were searched
    value: float | None  # validation NDCG@20; None if the training failed
    error: str = ""


class Tuning:
    """The trials of an objective; finished ones are stored in `study.db` of a folder."""

    def __init__(self, objective: Objective, folder: Path) -> None:
        self.objective, self.folder = objective, folder
        self.file = folder / "study.db"
        self.optuna = import_optuna()
        self.space = search_space(objective.model({}), objective.given)
        if not self.space:
            raise ConfigError(f"{objective.method} has no settings to search (fit it as it is)")
        self.study = self.optuna.create_study(direction="maximize")
        self.kept: Study | None = None
        if self.file.exists():
            self.kept = self._open()
            self.study.add_trials(self.kept.trials)

    @property
    def trials(self) -> list[Trial]:
        return [_trial(trial) for trial in self.study.trials]

    @property
    def best(self) -> Trial:
        """The trial with the highest value; the first one of several."""
        trials = self.trials
        good = [trial for trial in trials if trial.value is not None]
        if not good:
            why = trials[-1].error if trials else "there was none"
            raise ConfigError(f"{self.folder}: no trial of {len(trials)} succeeded: {why}")
        # `max` keeps the first of equal values.
        return max(good, key=lambda trial: trial.value or -math.inf)

    def run(self, trials: int, engine: TaskEngine = HERE, batch: int = 1) -> Iterator[Trial]:
        """Run until there are so many trials in total; each is stored before it is returned.

        Trials are proposed `batch` at a time, from the results of the batches before, and told in
        their order: which settings are tried depends on the seed and on `batch`, never on which
        trial ends first. A search that was stopped continues as if it had not been.
        """
        while (known := len(self.study.trials)) < trials:
            # A batch that was interrupted is asked for again from its first trial, so that all its
            # proposals come out as before; those that are done are skipped.
            first = known - known % batch
            asking, proposals = self._ask(range(first, min(first + batch, trials)))
            tasks = [
                TrialTask(self.objective, proposal.number, nested(proposal.params))
                for proposal in proposals[known - first :]
            ]
            for row in _in_order(engine.each(tasks), known):
                self._tell(asking, proposals[row.number - first], row)
                yield _trial(self.study.trials[-1])

    def _ask(self, numbers: range) -> "tuple[Study, list[OptunaTrial]]":
        """A batch of proposals, all from what was known before its first."""
        asking = self.optuna.create_study(direction="maximize")
        asking.add_trials(self.study.trials[: numbers.start])
        if numbers.start == 0:  # the defaults: no search ends with less
            asking.enqueue_trial(defaults(self.objective.model({}), self.space))
        proposals = []
        for number in numbers:
            # A sampler per trial, seeded by its number: a search that goes on proposes what it
            # would have.
            state = np.random.SeedSequence([self.objective.seed, number]).generate_state(1)
            asking.sampler = self.optuna.samplers.TPESampler(seed=int(state[0]))
            proposals.append(asking.ask(self.space))
        return asking, proposals

    def _tell(self, asking: "Study", proposal: "OptunaTrial", row: TrialRow) -> None:
        """Add a result to the study and to its file."""
        if row.value is None:
            proposal.set_user_attr("error", row.error)
            told = asking.tell(proposal, state=self.optuna.trial.TrialState.FAIL)
        else:
            told = asking.tell(proposal, row.value)
        self.study.add_trial(told)
        self._keep(self.study.trials[-1])

    def settings(self, trial: Trial) -> dict[str, Any]:
        """The settings with which `fit` reproduces the trial."""
        level = self.objective.method.level
        chosen = {} if level is None else {"alpha_prime": level}
        return merged(merged(self.objective.given, chosen), nested(trial.settings))

    def write_best(self) -> None:
        """best.json: the method and the settings that did best so far."""
        best = self.best
        content = {
            "fairhorizon": __version__,
            "method": self.objective.method.settings_name,
            "settings": self.settings(best),
            "validation": best.value,
            "metric": METRIC,
            "dataset": self.objective.dataset.split.name,
            "protocol": self.objective.protocol,
            "preset": self.objective.method_with_preset.preset,
            "seed": self.objective.seed,
            "trial": best.number,
            "trials": len(self.study.trials),
        }
        write_json(self.folder / "best.json", content)

    def to_json(self) -> dict[str, Any]:
        """The best trial, as the row of a study."""
        best = self.best
        row = {
            "method": self.objective.method.settings_name,
            "dataset": self.objective.dataset.split.name,
            "protocol": self.objective.protocol,
            "mode": Mode.ONE_SHOT,
            "seed": self.objective.seed,
            "metrics": {METRIC: {"mean": best.value, "std": 0}},
            "settings": self.settings(best),
            "trials": len(self.study.trials),
        }
        return {"rows": [row]}

    def _keep(self, trial: "FrozenTrial") -> None:
        if self.kept is not None:
            self.kept.add_trial(trial)
        else:
            write_atomically(self.file, lambda temporary: self._create(temporary, trial))
            self.kept = self._open()

    def _create(self, file: Path, trial: "FrozenTrial") -> None:
        storage = self.optuna.storages.RDBStorage(f"sqlite:///{file}")
        study = self.optuna.create_study(storage=storage, study_name=STUDY, direction="maximize")
        study.set_user_attr(IDENTITY, self.objective.identity())
        study.add_trial(trial)
        storage.engine.dispose()

    def _open(self) -> "Study":
        """The study of the file, refused if it is of another objective."""
        try:
            with closing(sqlite3.connect(self.file)) as base:
                base.execute("SELECT 1 FROM studies")  # else Optuna would create its tables in it
            storage = self.optuna.storages.RDBStorage(f"sqlite:///{self.file}")
            study: Study = self.optuna.load_study(storage=storage, study_name=STUDY)
            found: dict[str, str] = study.user_attrs[IDENTITY]
        except Exception as error:  # of SQLAlchemy, SQLite, Alembic or Optuna
            raise ConfigError(
                f"{self.file}: holds no search: {type(error).__name__} (name another --out)"
            ) from error
        wanted = self.objective.identity()
        if other := [key for key in wanted if found.get(key) != wanted[key]]:
            raise ConfigError(
                f"{self.folder}: holds a search of {found.get('method')} with other "
                f"{', '.join(other)} (name another --out, or give what it was started with)"
            )
        return study


def import_optuna() -> ModuleType:
    """Optuna, silent; it is an extra."""
    try:
        import optuna
    except ImportError:
        raise ConfigError("tune needs Optuna (pip install 'fairhorizon[tune]')") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _in_order(rows: Iterable[TrialRow], number: int) -> Iterator[TrialRow]:
    """The rows by their numbers, from this one on, each as soon as those before it are there."""
    early: dict[int, TrialRow] = {}
    for row in rows:
        early[row.number] = row
        while number in early:
            yield early.pop(number)
            number += 1


def _trial(trial: "FrozenTrial") -> Trial:
    value = trial.value if trial.state.name == "COMPLETE" else None
    return Trial(trial.number + 1, dict(trial.params), value, trial.user_attrs.get("error", ""))


def search_space(model: Recommender, given: Given) -> "dict[str, BaseDistribution]":
    """The range of each setting, by dotted name, without those that are given."""
    fixed = dotted(given)
    return {name: where for name, where in _ranges(model.settings) if name not in fixed}


def _ranges(config: Settings) -> "Iterator[tuple[str, BaseDistribution]]":
    from optuna import distributions

    for name, mark in searched(config):
        if isinstance(mark, Choice):
            values = tuple(map(as_proposed, mark.values))
            yield name, distributions.CategoricalDistribution(values)
        elif isinstance(mark.low, int) and isinstance(mark.high, int):
            yield name, distributions.IntDistribution(mark.low, mark.high, log=mark.log)
        else:
            yield name, distributions.FloatDistribution(mark.low, mark.high, log=mark.log)


def defaults(model: Recommender, space: "Mapping[str, BaseDistribution]") -> dict[str, Any]:
    """The current settings, as far as they lie within the space."""
    current = dotted(model.settings.model_dump())
    values = {name: as_proposed(value) for name, value in current.items()}
    return {name: values[name] for name, where in space.items() if _holds(where, values[name])}


def _holds(where: "BaseDistribution", value: Any) -> bool:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(where, CategoricalDistribution):
        return value in where.choices
    assert isinstance(where, FloatDistribution | IntDistribution)
    return value is not None and where.low <= value <= where.high


def as_proposed(value: Any) -> Any:
    """A value as Optuna stores it, which takes no lists: these as JSON."""
    return json.dumps(value) if isinstance(value, tuple | list) else value


def as_set(value: Any) -> Any:
    """A value as it is set; the reverse of `as_proposed`."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def dotted(settings: Given, prefix: str = "") -> dict[str, Any]:
    """{"pmf": {"l2": 1}} -> {"pmf.l2": 1}."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = isinstance(value, Mapping)
        flat |= dotted(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return flat


def nested(settings: Given) -> dict[str, Any]:
    """{"pmf.l2": 1} -> {"pmf": {"l2": 1}}; lists as they are set."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        *path, last = name.split(".")
        target = tree
        for step in path:
            target = target.setdefault(step, {})
        target[last] = as_set(value)
    return tree


def merged(first: Given, second: Given) -> dict[str, Any]:
    return nested(dotted(first) | dotted(second))
