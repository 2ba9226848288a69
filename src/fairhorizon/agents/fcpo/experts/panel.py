"""The panel: fitted rankers whose scores a policy weights."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.storage import below
from fairhorizon.vocabulary import OnEpoch, Protocol

LARGEST_FOR_EASE = 20_000  # items; beyond it, inverting their matrix takes longer than all the rest
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Panel:
    """Fitted rankers and the initial weight of each."""

    rankers: tuple[Ranker[Any], ...]
    weights: tuple[float, ...]

    @classmethod
    def fit(
        cls,
        names: Sequence[str],
        split: Split,
        protocol: Protocol,
        seed: int,
        fitted: Mapping[str, Ranker[Any]],
        on_epoch: OnEpoch | None = None,
    ) -> "Panel":
        """Fit the rankers that are not fitted yet; all weights are equal.

        A ranker that cannot be fitted on this log is left out.
        """
        rankers, refusals = [], []
        for name in suitable(names, split):
            try:
                ranker = fitted.get(name) or _fit(name, split, protocol, seed, on_epoch)
            except DataError as error:
                refusals.append(error)
            else:
                rankers.append(ranker)
        if not rankers:
            raise refusals[0]
        for refusal in refusals:
            warnings.warn(f"without one of its rankers: {refusal}", stacklevel=2)
        return cls(tuple(rankers), (1.0,) * len(rankers))

    def weighed(self, weights: Sequence[float]) -> "Panel":
        return replace(self, weights=tuple(weights))

    def refitted(self, split: Split) -> "Panel":
        """The same rankers fitted again, with the same weights."""
        rankers = (type(ranker)(ranker.config, seed=ranker.seed) for ranker in self.rankers)
        return Panel(tuple(ranker.fit(split) for ranker in rankers), self.weights)

    @property
    def queue_length(self) -> int:
        return max(1, *(ranker.queue_length for ranker in self.rankers))

    def tensors(self) -> Tensors:
        return {
            f"expert.{number}.{name}": value
            for number, ranker in enumerate(self.rankers)
            for name, value in ranker.tensors().items()
        }

    def description(self) -> dict[str, Any]:
        return {
            "rankers": [ranker.description() for ranker in self.rankers],
            "weights": list(self.weights),
        }

    @classmethod
    def from_parts(cls, tensors: Tensors, description: dict[str, Any]) -> "Panel":
        rankers = []
        for number, stored in enumerate(description["rankers"]):
            own = below(f"expert.{number}.", tensors)
            rankers.append(RANKERS[stored["method"]].from_parts(own, stored))
        return cls(tuple(rankers), tuple(description["weights"]))


def suitable(names: Sequence[str], split: Split) -> tuple[str, ...]:
    """The rankers that can handle a catalogue of this size."""
    large = split.train.n_items > LARGEST_FOR_EASE
    return tuple(name for name in names if not (large and name == "ease"))


def _fit(
    name: str, split: Split, protocol: Protocol, seed: int, on_epoch: OnEpoch | None
) -> Ranker[Any]:
    ranker_class = RANKERS[name]
    validates = "protocol" in ranker_class.config_class.model_fields
    config = ranker_class.config_class(**({"protocol": protocol} if validates else {}))
    return ranker_class(config, seed=seed).fit(split, on_epoch=on_epoch)
