"""Blocks of users, one of which loses its process once; workers import them from here."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.engine import Blocks, GroupTask, OneLimitBlock, group_lists_over
from fairhorizon.allocation.limit_matrix import Counts
from fairhorizon.limits.place_rule import PlaceRule

USERS, LENGTH = 40, 4
GROUP = np.arange(12) < 5
RULE = PlaceRule(0.2)


def candidates() -> Candidates:
    draw = np.random.default_rng(1)
    items = draw.random((USERS, 12)).argsort(1)[:, :8]
    return Candidates.checked(items, draw.random((USERS, 8)) + GROUP[items])


class DyingBlock(OneLimitBlock):
    """Is killed when it is given room for the first time, after the price was agreed on."""

    mark: Path

    @property
    def room(self) -> float:
        return self._room

    @room.setter
    def room(self, room: float) -> None:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self._room = room


@dataclass(frozen=True)
class DyingMaker:
    """Makes the first or the second half of the users; the second is lost once."""

    half: int
    mark: Path

    def __call__(self) -> DyingBlock:
        rows = slice(self.half * 20, self.half * 20 + 20)
        block = DyingBlock([candidates().take_users(rows)], GROUP)
        block.mark = self.mark if self.half else Path(__file__)
        return block


def serve_group(blocks: Blocks) -> Counts:
    """(USERS, LENGTH) the lists of these users under the limit."""
    group_lists_over(blocks, GroupTask(RULE, LENGTH))
    return np.concatenate(blocks.map(OneLimitBlock.lists))
