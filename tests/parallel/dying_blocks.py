"""Blocks of users, one of which loses its process once; workers import them from here."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.engine import Block, Blocks, allocate_over
from fairhorizon.allocation.limit_matrix import Counts, Floats, GroupRule, LimitMatrix
from fairhorizon.limits.place_rule import PlaceRule

USERS, LENGTH = 40, 4
GROUP = np.arange(12) < 5
LIMITS = LimitMatrix.from_rules([GroupRule(PlaceRule(0.2), GROUP)], LENGTH)


def candidates() -> Candidates:
    draw = np.random.default_rng(1)
    items = draw.random((USERS, 12)).argsort(1)[:, :8]
    return Candidates.checked(items, draw.random((USERS, 8)) + GROUP[items])


class DyingBlock(Block):
    """Is killed when it is given room for the first time, after the price was agreed on."""

    mark: Path

    @property
    def room(self) -> Floats:
        return self._room

    @room.setter
    def room(self, room: Floats) -> None:
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
        block = DyingBlock([candidates().take_users(rows)], LIMITS)
        block.mark = self.mark if self.half else Path(__file__)
        return block


def serve_group(blocks: Blocks) -> Counts:
    """(USERS, LENGTH) the lists of these users under the limit."""
    allocate_over(blocks, LIMITS)
    return np.concatenate(blocks.map(lists_of))


def lists_of(block: Block) -> Counts:
    return block.lists
