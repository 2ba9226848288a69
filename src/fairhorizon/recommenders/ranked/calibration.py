"""Calibration: the weight that turns the scores of one ranker into probabilities."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.rankers.candidates import ScoredCandidates, weights_by_cross_entropy
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.lists.features import (
    EnsembleItems,
    initial_candidates,
    liked_items,
    some_users,
)
from fairhorizon.simulation.feedback import validation_scenario
from fairhorizon.vocabulary import Protocol

CANDIDATES = 40  # best items of each group among the candidates of the calibration
MOST_USERS = 8192
# A weight of 0 or less would ignore the order of the ranker, or turn it round.
LEAST = 0.01
UNKNOWN = 1.0  # where there are no validation items


@dataclass(frozen=True)
class Calibration:
    """The numbers that turn the scores of a ranker into probabilities and values."""

    sharpness: float  # weight of the standardised score in the softmax over the candidates
    histories: Tensor  # (n_users,) how many training items each user has

    @classmethod
    def from_split(cls, ranker: Ranker[Any], split: Split, sensitive: Tensor) -> "Calibration":
        """On the validation items, with the maximum-likelihood weight of the score."""
        counts = torch.from_numpy(split.train.user_counts())
        return cls(sharpness(ranker, split, sensitive), counts)

    def tensors(self) -> dict[str, Tensor]:
        return {
            "sharpness": torch.tensor(self.sharpness, dtype=torch.float64),
            "histories": self.histories,
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "Calibration":
        return cls(float(tensors["sharpness"]), tensors["histories"])


@dataclass(frozen=True)
class FittedRanker:
    """A ranker that is ready to serve."""

    ranker: Ranker[Any]
    sensitive: Tensor  # (n_items,) bool, the group whose exposure is limited
    calibration: Calibration
    seed: int
    limits: tuple[ResolvedLimit, ...] = ()  # of the lists, in place of the level of a re-ranker
    level: str = ""  # of a re-ranker, as the text of a limit


def view_of(ranker: Ranker[Any], candidates: int) -> EnsembleItems:
    """The items as an ensemble of this ranker alone shows them."""
    ensemble = Ensemble((ranker,), (1.0,))
    return EnsembleItems(ensemble, ensemble.queue_length, candidates, priced=False)


@torch.no_grad()
def sharpness(ranker: Ranker[Any], split: Split, sensitive: Tensor) -> float:
    """The weight of the standardised score that makes the validation items the most likely."""
    view = view_of(ranker, CANDIDATES)
    # A ranker that was tuned under a protocol is calibrated under the same one.
    protocol = getattr(ranker.config, "protocol", Protocol.STANDARD)
    scenario = validation_scenario(split, view.ensemble.queue_length, protocol)
    users = some_users(scenario, MOST_USERS, torch.Generator().manual_seed(ranker.seed))
    if not len(users):
        return UNKNOWN
    initial = initial_candidates(view, scenario, users, sensitive)
    assert isinstance(initial.candidate_set, ScoredCandidates)
    with torch.enable_grad():
        (weight,) = weights_by_cross_entropy(initial.candidate_set, liked_items(initial, scenario))
    return max(LEAST, weight)
