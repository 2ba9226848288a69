"""How the lists of a recommender are made over blocks of users, here or in other processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from typing import Protocol as Interface

import numpy as np

from fairhorizon.allocation.engine import Blocks
from fairhorizon.recommenders.served import Served
from fairhorizon.simulation.feedback import Scenario


class BlockServing(Interface):
    """Serves blocks of users together."""

    def block(self, scenario: Scenario, length: int, users: int) -> Any:
        """The users of a scenario, who are some of so many `users`; made where they are served."""

    def serve_blocks(self, blocks: Blocks, length: int) -> Served:
        """The lists of the users of all blocks."""


@dataclass(frozen=True)
class EachAlone:
    """Every user's list depends on nobody else: a block is its lists."""

    served: Callable[[Scenario, int], Served]

    def block(self, scenario: Scenario, length: int, users: int) -> Served:  # noqa: ARG002
        return self.served(scenario, length)

    def serve_blocks(self, blocks: Blocks, length: int) -> Served:  # noqa: ARG002
        return joined(blocks.map(_itself))


def _itself(block: Served) -> Served:
    return block


def joined(parts: Sequence[Served]) -> Served:
    """The lists of all users, from those of blocks; the prices are the same in all."""

    def column(name: str) -> np.ndarray | None:
        tables = [getattr(part, name) for part in parts]
        return None if tables[0] is None else np.concatenate(tables)

    lists = np.concatenate([part.lists for part in parts])
    return Served(lists, column("values"), column("scores"), parts[0].prices)
