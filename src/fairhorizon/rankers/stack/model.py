"""Several rankers as one: each with the settings that suit the log, weighed by what they add."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.histories import UserItems
from fairhorizon.rankers.ease import Ease
from fairhorizon.rankers.gru4rec import Gru4Rec
from fairhorizon.rankers.itemknn import ItemKnn
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.ridge import Ridge
from fairhorizon.rankers.stack.choosing import chosen_settings
from fairhorizon.rankers.stack.later_part import LaterPart, frequent_part
from fairhorizon.rankers.stack.weighing import Shortlists, best_weights
from fairhorizon.ranking import standardised
from fairhorizon.settings import Settings
from fairhorizon.storage import below
from fairhorizon.vocabulary import OnEpoch, Protocol

MEMBERS: dict[str, type[Ranker[Any]]] = {
    ranker.method: ranker for ranker in (Ridge, Ease, ItemKnn, Popularity, Gru4Rec)
}
LARGEST_FOR_EASE = 20_000  # items; beyond it, inverting their matrix takes longer than all the rest
SEARCHED_USERS, SEARCHED_ITEMS = 3000, 1000  # settings are chosen on a smaller log

Member = Literal["ridge", "ease", "itemknn", "popularity", "gru4rec"]


class StackConfig(Settings):
    """Settings of the stack."""

    rankers: Annotated[tuple[Member, ...], Field(min_length=1)] = (
        "ridge",
        "ease",
        "itemknn",
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
    before, and on the validation items, with rankers fitted on the whole training log.
    """

    method = "stack"
    config_class = StackConfig

    members_: tuple[Ranker[Any], ...]
    weights_: Tensor  # (members,)

    @property
    def queue_length(self) -> int:
        return max(1, *(member.queue_length for member in self.members_))

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        drafts = [self._draft(name) for name in suitable(self.config.rankers, split)]
        if self.config.adapt:
            drafts = self._adapted(drafts, split)
        later = LaterPart.of_training(split, self.config.protocol, seed=self.seed)
        shortlists = []
        if len(later.users):
            earlier = [_fresh(draft).fit(later.split, on_epoch=on_epoch) for draft in drafts]
            shortlists.append(Shortlists.of([later.scores(member) for member in earlier], later))
        self.members_ = tuple(draft.fit(split, on_epoch=on_epoch) for draft in drafts)
        last = LaterPart.of(
            split,
            UserItems.of(split.validation),
            self.config.protocol,
            seed=self.seed,
        )
        if len(last.users):
            scores = [last.scores(member) for member in self.members_]
            shortlists.append(Shortlists.of(scores, last))
        self.weights_ = best_weights(shortlists) if shortlists else torch.ones(len(drafts))

    def _draft(self, name: str) -> Ranker[Any]:
        member = MEMBERS[name]
        validates = "protocol" in member.config_class.model_fields
        given = {"protocol": self.config.protocol} if validates else {}
        return member(member.config_class(**given), seed=self.seed)

    def _adapted(self, drafts: Sequence[Ranker[Any]], split: Split) -> list[Ranker[Any]]:
        """The rankers, not fitted yet, with the settings that suit a smaller log of the kind."""
        small = frequent_part(
            split, most_users=SEARCHED_USERS, most_items=SEARCHED_ITEMS, seed=self.seed
        )
        part = LaterPart.of_training(small, self.config.protocol, seed=self.seed)
        if not len(part.users):
            return list(drafts)
        return [type(draft)(chosen_settings(draft, part), seed=self.seed) for draft in drafts]

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:
        total = torch.zeros(())
        for member, weight in zip(self.members_, self.weights_, strict=True):
            if weight > 0:
                total = total + weight * standardised(member.scores(users, queue))
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


def suitable(names: Sequence[str], split: Split) -> tuple[str, ...]:
    """The rankers that can handle a catalogue of this size."""
    large = split.train.n_items > LARGEST_FOR_EASE
    return tuple(name for name in names if not (large and name == "ease"))


def _fresh(ranker: Ranker[Any]) -> Ranker[Any]:
    return type(ranker)(ranker.config, seed=ranker.seed)
