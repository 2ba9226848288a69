"""One trial of a search: what is tuned, and what a proposal comes to."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol as Interface

from fairhorizon.datasets import Dataset
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.validation import validation_ndcg
from fairhorizon.methods import Method, MethodError, build, presets_of
from fairhorizon.recommenders.base import Recommender
from fairhorizon.settings import Given
from fairhorizon.studies.search_space import merged
from fairhorizon.vocabulary import Protocol


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
                f"{self.method}: a re-ranker is not trained (tune {self.method.base}, then fit "
                f"{self.method} with the settings found)"
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
class TrialTask:
    """One proposal to be tried."""

    objective: Objective
    number: int  # from 0
    settings: Given

    def prepare(self) -> None:
        self.objective.place.dataset()

    def rows(self) -> "Iterator[TrialRow]":
        try:
            yield TrialRow(self.number, self.objective.value(self.settings))
        except ConfigError as error:
            yield TrialRow(self.number, None, str(error))


@dataclass(frozen=True)
class TrialRow:
    """What came of it; without a value, why."""

    number: int
    value: float | None
    error: str = ""
