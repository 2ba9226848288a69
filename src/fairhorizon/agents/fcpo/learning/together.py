"""A training by several processes, each with some of the users, who all take the same steps."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fairhorizon.agents.crew import Crew, Meeting
from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.learning.ranks import Ranks
from fairhorizon.agents.fcpo.learning.team import Team
from fairhorizon.agents.fcpo.learning.training import Training, TrainingState
from fairhorizon.agents.progress import RoundReport
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split


def rounds_by(crew: Crew, training: Training) -> Generator[RoundReport]:
    """The rounds that are left, computed by a crew; between two, the training is as after one."""
    if training.finished:
        return
    members = [UsersOfRank.of(training, rank, crew.size) for rank in range(crew.size)]
    with closing(crew.rows(members)) as states:
        for state in states:
            training.restore(state)
            yield state.reports[-1]


@dataclass(frozen=True)
class UsersOfRank:
    """What one rank has: the logs and vectors of its users, and where the training stands."""

    split: Split
    config: FcpoConfig
    vectors: tuple[Tensor, Tensor]  # of its users, and of all items
    sensitive: Tensor
    seed: int
    state: TrainingState

    @classmethod
    def of(cls, training: Training, rank: int, size: int) -> "UsersOfRank":
        encoder, split = training.actor.encoder, training.split
        train, validation = (_of_rank(log, rank, size) for log in (split.train, split.validation))
        return cls(
            Split(train, validation, train.take([])),
            training.config,
            (encoder.user_vectors[rank::size].cpu(), encoder.item_vectors[:-1].cpu()),
            training.sensitive.cpu(),
            training.seed,
            training.state(),
        )

    def rows(self, meeting: Meeting) -> Iterator[TrainingState]:
        """The state after every round."""
        with Ranks(meeting) as team:
            training = self.training(team)
            for _ in training.rounds():
                yield training.state()

    def training(self, team: Team) -> Training:
        """The training as this rank sees it."""
        training = Training(
            self.split,
            self.config,
            vectors=self.vectors,
            sensitive=self.sensitive.to(team.device),
            seed=self.seed,
            pretraining_rmse=None,
            team=team,
        )
        training.restore(self.state)
        return training


def _of_rank(log: Interactions, rank: int, size: int) -> Interactions:
    """The rows of every `size`-th user, from the rank on, who get the codes 0, 1, ...

    With nothing that a policy does not look at.
    """
    own = log.users % size == rank
    return Interactions(
        users=log.users[own] // size,
        items=log.items[own],
        user_ids=np.arange(rank, log.n_users, size),
        item_ids=np.arange(log.n_items),
        name=log.name,
    )
