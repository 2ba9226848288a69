"""The Fisher matrix of a policy on a sample of states: what CPO measures steps by."""

from dataclasses import dataclass
from typing import Protocol as Interface

from torch import Tensor

from fairhorizon.policy.softmax import ItemPolicy, rows_of
from fairhorizon.rankers.candidates import CandidateSet


class FisherMetric(Interface):
    """The sampled states of a Fisher product, and the Fisher matrix M of their outputs."""

    @property
    def states(self) -> Tensor:
        """(s,) rows of the batch's distinct states."""

    def product(self, tangent: Tensor) -> Tensor:
        """M v for v, of the shape of the outputs in these states."""


@dataclass(frozen=True)
class SoftmaxFisher:
    """(diag P - P P') / temperature² in the logits of sampled steps."""

    states: Tensor
    menus: CandidateSet
    policy: ItemPolicy
    temperature: float

    def product(self, tangent: Tensor) -> Tensor:
        rows = rows_of(tangent, self.policy.log_probs.shape[1])
        by_logits = self.policy.fisher(self.menus.logits(rows) / self.temperature)
        return self.menus.pull(by_logits).flatten(1) / (self.temperature * len(tangent))
