"""A training on its own, for studies whose tasks share trained models."""

from collections.abc import Iterator
from dataclasses import dataclass

from fairhorizon.experiments.study import Task
from fairhorizon.results.studies import TrainingRow


@dataclass(frozen=True)
class ModelTask:
    """A model to be trained and stored for later tasks."""

    task: Task

    def prepare(self) -> None:
        self.task.prepare()

    def rows(self) -> Iterator[TrainingRow]:
        _, seconds = self.task.trained(self.task.study.dataset())
        yield TrainingRow(f"{self.task.methods[0]} seed {self.task.seed}", seconds)
