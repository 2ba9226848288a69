"""The panel: fitted rankers whose scores a policy weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.rankers.ranker import Ranker

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Panel:
    """Fitted rankers and the initial weight of each."""

    rankers: tuple[Ranker[Any], ...]
    weights: tuple[float, ...]

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
