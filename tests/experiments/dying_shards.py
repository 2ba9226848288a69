"""Shards of users, one of which loses its process once; workers import them from here."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.sharded.calls import UserShards
from fairhorizon.allocation.sharded.joint import JointOver
from fairhorizon.allocation.sharded.user_shard import UserShard
from numpy.typing import NDArray

from fairhorizon.agents.served import Served
from fairhorizon.environment.feedback import Scenario
from fairhorizon.experiments.run_blocks import NumberedShard
from fairhorizon.exposure.place_rule import PlaceRule

USERS, LENGTH = 40, 4
SENSITIVE = torch.arange(12) < 5


def candidates() -> Candidates:
    draw = torch.Generator().manual_seed(1)
    items = torch.rand(USERS, 12, generator=draw).argsort(1)[:, :8]
    return Candidates(items, torch.rand(USERS, 8, generator=draw) + SENSITIVE[items].float())


class DyingShard(UserShard):
    """Is killed when places are granted for the first time, by the call that changes its state."""

    mark: Path

    def grant(self, cut: int | None, ties: int, of_forced: bool) -> None:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().grant(cut, ties, of_forced)

    def shown(self) -> NDArray[np.int64]:
        lists: NDArray[np.int64] = self.lists.numpy()
        return lists


@dataclass(frozen=True)
class DyingMaker:
    """Makes the first or the second half of the users; the second is lost once."""

    half: int
    mark: Path

    def __call__(self) -> NumberedShard:
        rows, every = slice(self.half * 20, self.half * 20 + 20), candidates()
        shard = DyingShard([Candidates(every.items[rows], every.values[rows])], SENSITIVE)
        shard.mark = self.mark if self.half else Path(__file__)
        return NumberedShard(shard)


class JointWay:
    """Joint lists of these users."""

    def shard(self, scenario: Scenario, length: int, users: int) -> object:
        raise NotImplementedError

    def serve(self, shards: UserShards, length: int) -> Served:
        JointOver(shards, SENSITIVE).make(PlaceRule(0.2), length)
        return Served(np.concatenate(shards.ask("shown")))
