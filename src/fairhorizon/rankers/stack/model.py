"""Several rankers as one: each with the settings that suit the log, weighed by what they add."""

from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.rankers.fitting import FitJob, fit_all
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.stack.given import MEMBERS, MemberSettings
from fairhorizon.rankers.stack.members import StackTask, adapted, weighed_members
from fairhorizon.ranking import standardised
from fairhorizon.storage import below
from fairhorizon.vocabulary import OnEpoch, Protocol

Name = Literal["ridge", "ease", "ease:recent", "itemknn", "itemknn:recent", "popularity", "gru4rec"]


class StackConfig(MemberSettings):
    """Settings of the stack."""

    rankers: Annotated[tuple[Name, ...], Field(min_length=1)] = (
        "ridge",
        "ease:recent",
        "itemknn:recent",
        "popularity",
    )
    """The rankers whose scores are added up."""
    adapt: bool = True
    """Whether the settings of the rankers are chosen on the log; if not, they are the defaults."""
    protocol: Protocol = Protocol.STANDARD
    """Which items the lists may show by which settings and weights are chosen."""


class Stack(Ranker[StackConfig]):
    """The weighted sum of several rankers, each with the settings that suit the log.

    score = sum_e w_e z_e, z_e: the scores of ranker e, standardised over the items of a user.

    Settings and weights are chosen by the NDCG of lists over what users took later: settings on the
    last fifth of every user's training items; weights on these, with rankers fitted on what comes
    before, and on the validation items, with rankers fitted on the whole training log. A ranker
    that adds nothing is left out. In a catalogue of which EASE knows but the frequent items, ALS is
    tried too.
    """

    method = "stack"
    uses_weights = True  # those of its rankers that do
    config_class = StackConfig

    members_: tuple[Ranker[Any], ...]
    weights_: Tensor  # (members,)

    @property
    def queue_length(self) -> int:
        return max(1, *(member.queue_length for member in self.members_))

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        config = self.config
        drafts = config.drafts(MEMBERS, config.rankers, split, self.seed)
        task = StackTask(split, config.protocol, self.seed, on_epoch=on_epoch)
        members = weighed_members(
            adapted(drafts, config.given_to, task) if config.adapt else drafts, task
        )
        self.members_, self.weights_ = members.whole, torch.tensor(members.weights)

    def refitted(self, split: Split, *, on_epoch: OnEpoch | None = None) -> Self:
        """The members fitted again with their settings; their weights stay."""
        other = type(self)(self.config, seed=self.seed)
        fits = fit_all([FitJob(member.again(), split) for member in self.members_], on_epoch)
        pairs = [(one, w) for one, w in zip(fits, self.weights_, strict=True) if one is not None]
        other.members_ = tuple(one for one, _ in pairs)
        other.weights_ = torch.stack([weight for _, weight in pairs])
        other.fingerprint_ = split.train.fingerprint()
        return other

    def few_scores(self, users: Tensor, queue: Tensor) -> Tensor:
        return self._sum(users, queue, few=True)

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:
        return self._sum(users, queue, few=False)

    def _sum(self, users: Tensor, queue: Tensor, *, few: bool) -> Tensor:
        total = torch.zeros(())
        for member, weight in zip(self.members_, self.weights_, strict=True):
            scores = member.few_scores if few else member.scores
            total = total + weight * standardised(scores(users, queue))
        return total

    def tensors(self) -> dict[str, Tensor]:
        parts = {
            f"{member.method}.{name}": value
            for member in self.members_
            for name, value in member.tensors().items()
        }
        return parts | {"weights": self.weights_}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The weights; the members are restored by `from_parts`, which knows their settings."""
        self.weights_ = tensors["weights"]
        for member in getattr(self, "members_", ()):
            member.restore(below(f"{member.method}.", tensors))

    def description(self) -> dict[str, Any]:
        members = [member.description() for member in self.members_]
        return super().description() | {"members": members}

    @classmethod
    def from_parts(cls, tensors: dict[str, Tensor], description: dict[str, Any]) -> Self:
        stack = super().from_parts(tensors, description)
        stack.members_ = tuple(
            MEMBERS[stored["method"]].from_parts(below(f"{stored['method']}.", tensors), stored)
            for stored in description["members"]
        )
        return stack
