"""The method `stack`: an ensemble of rankers as a ranker of its own."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.rankers.ensemble import (
    MEMBERS,
    Ensemble,
    EnsembleTask,
    MemberSettings,
    fit_ensemble,
)
from fairhorizon.rankers.ranker import Ranker
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

    ensemble_: Ensemble

    @property
    def queue_length(self) -> int:
        return self.ensemble_.queue_length

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        config = self.config
        drafts = config.drafts(MEMBERS, config.rankers, split, self.seed)
        task = EnsembleTask(split, config.protocol, self.seed, on_epoch=on_epoch)
        given_to = config.given_to if config.adapt else None
        self.ensemble_ = fit_ensemble(drafts, task, given_to).whole

    def refitted(self, split: Split, *, on_epoch: OnEpoch | None = None) -> Self:
        """The members fitted again with their settings; their weights stay."""
        other = type(self)(self.config, seed=self.seed)
        other.ensemble_ = self.ensemble_.again(split, on_epoch)
        other.fingerprint_ = split.train.fingerprint()
        return other

    def score_small_batch(self, users: Tensor, queue: Tensor) -> Tensor:
        return self.ensemble_.scores(users, queue, few=True)

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:
        return self.ensemble_.scores(users, queue)

    def tensors(self) -> dict[str, Tensor]:
        return self.ensemble_.tensors()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The values of the members; who they are and their weights come from `from_parts`."""
        for number, member in enumerate(self.ensemble_.rankers):
            member.restore(below(f"expert.{number}.", tensors))

    def description(self) -> dict[str, Any]:
        return super().description() | {"ensemble": self.ensemble_.description()}

    @classmethod
    def from_parts(cls, tensors: dict[str, Tensor], description: dict[str, Any]) -> Self:
        stack = cls(StackConfig.from_file(description["config"]), seed=description["seed"])
        stack.fingerprint_ = description["fingerprint"]
        stack.ensemble_ = Ensemble.from_parts(tensors, description["ensemble"], MEMBERS)
        return stack
