"""Lists of a run over shards of users, each in a worker that reads run and data by their paths."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.agents.base import Recommender
from fairhorizon.agents.lists.opening import BLOCKED_AT_ONCE
from fairhorizon.agents.served import Served
from fairhorizon.agents.sharding import ShardWay
from fairhorizon.engines.engine import ATTEMPTS, Messages, Shards, TaskEngine
from fairhorizon.environment.feedback import Scenario, evaluation_scenario, serving_scenario
from fairhorizon.errors import FairHorizonError
from fairhorizon.experiments.datasets import Dataset
from fairhorizon.experiments.runs import Run
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.ranking import rows_at_once
from fairhorizon.vocabulary import Protocol

FEWEST_USERS = 16  # of a shard: products of matrices of a few rows are rounded in another way


@dataclass(frozen=True)
class ListsOfRun:
    """Which lists of a run are made: all that a worker needs to know.

    level: alpha' to serve at, where there are no limits; None: that of the fit.
    protocol: of the states after the training items; None: after everything in the log.
    users: (n,) codes of those who are served; None: everybody.
    worth: (n,) by which the values of each of them are multiplied; None: 1.
    """

    run: Path
    length: int
    protocol: Protocol | None
    cache_dir: Path | None = None
    level: float | None = None
    limits: tuple[BoundLimit, ...] = ()
    users: NDArray[np.int64] | None = None
    feedback: bool = False
    worth: Tensor | None = None

    def model(self) -> Recommender:
        model = Run(self.run).model(self.level)
        return model.under(self.limits) if self.limits else model

    def scenario(self, model: Recommender, dataset: Dataset) -> Scenario:
        """The states of the users who are served."""
        if self.protocol is None:
            scenario = serving_scenario(dataset.log, model.queue_length)
        else:
            scenario = evaluation_scenario(dataset.split, model.queue_length, self.protocol)
        if self.users is not None:
            scenario = scenario.only(torch.from_numpy(self.users))
        return replace(scenario, worth=self.worth)


@dataclass(frozen=True)
class RunShard:
    """Makes one of the shards, in its worker."""

    lists: ListsOfRun
    number: int
    shards: int

    def __call__(self) -> "NumberedShard":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the data: they were shown before
            model = self.lists.model()
            dataset = Run(self.lists.run).data().open(self.lists.cache_dir)
        scenario = self.lists.scenario(model, dataset)
        rows = users_of(self.number, self.shards, scenario.n_users, dataset.log.n_items)
        way = model.in_shards(feedback=self.lists.feedback)
        assert way is not None
        own = scenario.only(torch.arange(rows.start, rows.stop))
        return NumberedShard(way.shard(own, self.lists.length, scenario.n_users))


def users_of(number: int, shards: int, n_users: int, n_items: int) -> range:
    """The users of one of the shards: whole blocks of those that are scored together, if it can be.

    Then every product of matrices has the same rows, and is rounded in the same way.
    """
    block = rows_at_once(n_items, BLOCKED_AT_ONCE)
    starts = np.arange(0, n_users, block if block * shards <= n_users else 1)
    bounds = [int(part[0]) for part in np.array_split(starts, shards)] + [n_users]
    return range(bounds[number], bounds[number + 1])


class LostShardError(FairHorizonError):
    """A shard was made anew in the middle of an exchange, and does not know what went before."""


class NumberedShard:
    """A shard that remembers what it was asked, and notices if it cannot."""

    def __init__(self, shard: object) -> None:
        self.shard, self.next = shard, 0

    def call(self, number: int, method: str, arguments: Sequence[object]) -> Any:
        """The answer to the call with this number; 0 begins anew."""
        if number not in (0, self.next):
            raise LostShardError("a shard of users was lost (run the command again)")
        self.next = number + 1
        return getattr(self.shard, method)(*arguments)


class NumberedCalls:
    """Calls to the shards of an engine, one after the other (`UserShards`)."""

    def __init__(self, shards: Shards) -> None:
        self.shards, self.number = shards, 0

    def __len__(self) -> int:
        return len(self.shards)

    def ask(self, method: str, *arguments: object) -> list[Any]:
        self.number += 1
        return self.shards.call("call", self.number - 1, method, arguments)

    def tell(self, method: str, arguments: Sequence[tuple[object, ...]]) -> list[Any]:
        self.number += 1
        own = [(self.number - 1, method, some) for some in arguments]
        return self.shards.call_each("call", own)


@dataclass(frozen=True)
class ShardedLists:
    """Lists, and what it took to make them together."""

    served: Served
    shards: int
    messages: Messages

    def __str__(self) -> str:
        sent, received = (round(n / 1000) for n in (self.messages.sent, self.messages.received))
        return (
            f"{self.shards} shards of users, {self.messages.calls:,} calls: "
            f"{sent:,} kB sent, {received:,} kB received"
        )


def served_in_shards(
    lists: ListsOfRun, model: Recommender, n_users: int, engine: TaskEngine
) -> ShardedLists | None:
    """The lists of a run, made by as many shards as the engine has workers.

    None where one process makes them: few users, one worker, or a model that has no other way.
    model: that of the lists.
    """
    shards = min(engine.workers, n_users // FEWEST_USERS)
    way = model.in_shards(feedback=lists.feedback) if shards > 1 else None
    if way is None:
        return None
    makers = [RunShard(lists, number, shards) for number in range(shards)]
    with engine.shards(makers) as workers:
        return ShardedLists(serve_again(way, workers, lists.length), shards, workers.messages)


def serve_again(way: ShardWay, shards: Shards, length: int) -> Served:
    """The lists of all shards; all over again if one is lost, as its state is made of all calls."""
    for _ in range(ATTEMPTS - 1):
        try:
            return way.serve(NumberedCalls(shards), length)
        except LostShardError:
            continue
    return way.serve(NumberedCalls(shards), length)
