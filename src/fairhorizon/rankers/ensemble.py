"""The panel: fitted rankers whose scores a policy weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.rankers.fitting import FitJob, Ready, fit_all
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.retrieval import VectorSearch, again
from fairhorizon.vocabulary import OnEpoch

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Ensemble:
    """Fitted rankers and the initial weight of each."""

    rankers: tuple[Ranker[Any], ...]
    weights: tuple[float, ...]
    ndcg: tuple[float, ...] = ()  # of each ranker alone, where it was measured
    found: tuple[str, ...] = ()  # what choosing them found out about the log, in words
    # of a large catalogue: where candidates are looked up, None for a ranker that scores all items
    searches: tuple[VectorSearch | None, ...] = ()

    def __deepcopy__(self, memo: dict[int, object]) -> "Ensemble":
        """The same panel: rankers are as large as catalogues, and nobody changes fitted ones."""
        return self

    def with_searches(self, searches: Sequence[VectorSearch | None]) -> "Ensemble":
        """The panel with searches in as many clusters as those of its rankers in another panel."""
        pairs = zip(searches, self.rankers, strict=True)
        return replace(self, searches=tuple(again(search, ranker) for search, ranker in pairs))

    def ways(self) -> Iterator[tuple[Ranker[Any], VectorSearch | None]]:
        """Every ranker with the search of its candidates, None where it scores all items."""
        return zip(self.rankers, self.searches or (None,) * len(self.rankers), strict=True)

    def weighed(self, weights: Sequence[float]) -> "Ensemble":
        return replace(self, weights=tuple(weights))

    def refitted(
        self, split: Split, ready: Ready | None = None, on_epoch: OnEpoch | None = None
    ) -> "Ensemble":
        """The same rankers fitted again, with the same weights; some may be ready."""
        fits = fit_all([FitJob(ranker, split, ready or {}) for ranker in self.rankers], on_epoch)
        return self.of_fitted(fits)

    def again(self, split: Split, on_epoch: OnEpoch | None = None) -> "Ensemble":
        """The same rankers fitted again as the last time, also in the number of their epochs."""
        fits = fit_all([FitJob(ranker.again(), split) for ranker in self.rankers], on_epoch)
        return self.of_fitted(fits)

    def of_fitted(self, fits: Sequence[Ranker[Any] | None]) -> "Ensemble":
        """The panel with these rankers in place of its own, without those that are None."""
        kept = [number for number, ranker in enumerate(fits) if ranker is not None]
        return replace(
            self,
            rankers=tuple(ranker for ranker in fits if ranker is not None),
            weights=tuple(self.weights[number] for number in kept),
            ndcg=tuple(self.ndcg[number] for number in kept) if self.ndcg else (),
            searches=tuple(
                again(self.searches[number], fits[number]) for number in kept if self.searches
            ),
        )

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
        measured = {"ndcg": list(self.ndcg), "found": list(self.found)} if self.ndcg else {}
        searched = [None if one is None else one.probes for one in self.searches]
        return {
            "rankers": [ranker.description() for ranker in self.rankers],
            "weights": list(self.weights),
            **measured,
            **({"probes": searched} if any(searched) else {}),
        }
