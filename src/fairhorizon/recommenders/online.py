"""The interface of recommenders in a long run, and refitting them on what users liked meanwhile."""

import json
from collections.abc import Sequence
from typing import Any
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.data.splits import Split, with_feedback
from fairhorizon.errors import ConfigError
from fairhorizon.limits.counts import Exposure
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.storage import below

DESCRIPTION = "description"


class OnlineRecommender(Interface):
    """A recommender that serves in a long run.

    The caller owns state and exposure, the recommender what it learns. A step is `serve` and then
    `observe`; `update` is called every few steps.
    """

    @property
    def queue_length(self) -> int:
        """How much of a user's history it wants to see."""

    @property
    def remarks(self) -> Sequence[str]:
        """Warnings so far, such as that a target could not be reached."""

    def serve(self, state: State, exposure: Exposure) -> Tensor:
        """(b, K) items for every user, -1 where nothing is left to show.

        Group labels of the moment are `exposure.sensitive`; it is up to the server how often it
        looks at them.
        """

    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:
        """Learn what came of the lists (b, K) just served.

        outcome: feedback, and in `outcome.state` the state that the next step starts from.
        exposure: the lists are counted in it; items still have the labels they were shown under.
        """

    def update(self) -> None:
        """Learn from what was observed since the last update, where the method can."""

    def notes(self) -> dict[str, float]:
        """Numbers for the record of the last step, such as a price."""

    def tensors(self) -> dict[str, Tensor]:
        """A copy of all that changed since the run began; taken right after an update."""

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        """Go on from `tensors` of another server of the same kind, users being in `state`."""


class ResponseLearner(Interface):
    """The part of a recommender that learns from responses; it can be pretrained before a run."""

    kinds: Tensor | None  # (n_items, kinds) the part that each kind has in an item, where known

    @property
    def pretraining_runs(self) -> int:
        """Recorded runs among simulated users that it is to learn from before the run."""

    def learn(self) -> None:
        """From all runs recorded so far."""

    def tensors(self) -> dict[str, Tensor]:
        """What was learned, and the record."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from `tensors` of another one."""


class Retraining:
    """Collects what users like; due after `round_length` items were shown to each."""

    def __init__(self, split: Split, round_length: int = 100) -> None:
        if round_length < 1:
            raise ConfigError(f"a round has at least one item, not {round_length}")
        self.split, self.round_length = split, round_length
        self.shown = 0  # to each user since the round began
        self._liked: list[Tensor] = []  # (2, n) users and items, one of each step

    def observe(self, lists: Tensor, outcome: Outcome) -> None:
        rows, slots = outcome.hits.nonzero(as_tuple=True)
        self._liked.append(torch.stack([outcome.state.users[rows], lists[rows, slots]]).cpu())
        self.shown += lists.shape[1]

    @property
    def due(self) -> bool:
        return self.shown >= self.round_length

    def extended(self) -> Split:
        """The data to fit on; starts a new round."""
        self.shown = 0
        users, items = self.liked().numpy()
        return with_feedback(self.split, users, items)

    def liked(self) -> Tensor:
        """(2, n) users and items, in the order observed."""
        return torch.cat([torch.empty(2, 0, dtype=torch.int64), *self._liked], dim=1)

    def tensors(self) -> dict[str, Tensor]:
        return {"liked": self.liked(), "shown": torch.tensor(self.shown)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self._liked, self.shown = [tensors["liked"].clone()], int(tensors["shown"])


class OnlineRanker:
    """A ranker in a long run, fitted again with `retraining`; the ranker given stays as it is."""

    def __init__(self, ranker: Ranker[Any], retraining: Retraining | None) -> None:
        self.given = self.now = ranker
        self.retraining = retraining

    def observe(self, lists: Tensor, outcome: Outcome) -> None:
        if self.retraining is not None:
            self.retraining.observe(lists, outcome)

    def refit_when_due(self) -> bool:
        """Whether a round of retraining was over, and the ranker is another one now."""
        if self.retraining is None or not self.retraining.due:
            return False
        self.refit(self.retraining)
        return True

    def refit(self, retraining: Retraining) -> None:
        # From scratch with the seed of the given ranker: refits in the same round are alike,
        # whoever served before.
        fresh = type(self.given)(self.given.config, seed=self.given.seed)
        self.now = fresh.fit(retraining.extended())

    def tensors(self) -> dict[str, Tensor]:
        """What changed since the run began."""
        tensors: dict[str, Tensor] = {}
        if self.retraining is not None:
            stored = self.retraining.tensors()
            tensors |= {f"retraining.{name}": value for name, value in stored.items()}
        if self.now is not self.given:
            # A fit may choose settings, so the description is stored with the values, in JSON.
            text = json.dumps(self.now.description()).encode()
            stored = self.now.tensors() | {DESCRIPTION: torch.tensor(list(text), dtype=torch.uint8)}
            tensors |= {f"ranker.{name}": value for name, value in stored.items()}
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from `tensors` of another one; names of others are passed over."""
        if self.retraining is not None:
            self.retraining.restore(below("retraining.", tensors))
        values = {name: value.clone() for name, value in below("ranker.", tensors).items()}
        self.now = self.given
        if values:
            description = json.loads(bytes(values.pop(DESCRIPTION).tolist()))
            self.now = type(self.given).from_parts(values, description)
