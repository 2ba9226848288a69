"""How the lists of a recommender are made over shards of users."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np

from fairhorizon.agents.served import Served
from fairhorizon.allocation.sharded.calls import UserShards
from fairhorizon.environment.feedback import Scenario


class ShardWay(Interface):
    """A way of serving that shards of users share; the lists do not depend on their number."""

    def shard(self, scenario: Scenario, length: int, users: int) -> object:
        """What works for some of so many users, where they are; `serve` calls its methods."""

    def serve(self, shards: UserShards, length: int) -> Served:
        """The lists of the users of all shards."""


@dataclass(frozen=True)
class AloneInShards:
    """Every user's list depends on nobody else."""

    served: Callable[[Scenario, int], Served]

    def shard(self, scenario: Scenario, length: int, users: int) -> "LoneShard":  # noqa: ARG002
        return LoneShard(self.served(scenario, length))

    def serve(self, shards: UserShards, length: int) -> Served:  # noqa: ARG002
        return joined(shards.ask("served"))


@dataclass(frozen=True)
class LoneShard:
    """The lists of some users, made when the shard is."""

    made: Served

    def served(self) -> Served:
        return self.made


def joined(parts: Sequence[Served]) -> Served:
    """The lists of all users, from those of shards; the prices are the same in all."""

    def column(name: str) -> np.ndarray | None:
        tables = [getattr(part, name) for part in parts]
        return None if tables[0] is None else np.concatenate(tables)

    lists = np.concatenate([part.lists for part in parts])
    return Served(lists, column("values"), column("scores"), parts[0].prices)
