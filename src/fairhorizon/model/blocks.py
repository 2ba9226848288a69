"""Lists of a run, made in blocks of users by several workers.

A worker gets paths, not arrays: it opens the run and its data itself. So little is sent, and the
same code runs in processes of one machine and on a cluster with a shared file system.
"""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.items import merged_tables
from fairhorizon.data.loading import load_items
from fairhorizon.datasets import Dataset
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.model.cold_start import Catalogue
from fairhorizon.model.folder import ModelFolder
from fairhorizon.model.model import open_model
from fairhorizon.model.serving import (
    RepeatRule,
    Requests,
    ServingState,
    check_table,
    find_users,
    request_scenario,
)
from fairhorizon.parallel.engine import Messages, TaskEngine, WorkerBlocks
from fairhorizon.recommenders.base import RankedLists, Recommender
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario, serving_scenario
from fairhorizon.vocabulary import Protocol

FEWEST_USERS = 16  # of a block; with fewer, starting a worker takes longer than making the lists


@dataclass(frozen=True, eq=False)
class ItemChoice:
    """Items that users may not be shown, in addition to those that they have taken."""

    rows: Tensor  # (n,) users, by row of the scenario
    items: Tensor  # (n,) codes of the item that is not shown to the user in the same place of rows
    never_shown: Tensor  # (n_items,) bool: not shown to anybody


def _narrowed(scenario: Scenario, worth: Tensor | None, choice: ItemChoice | None) -> Scenario:
    scenario = replace(scenario, worth=worth)
    if choice is None:
        return scenario
    return scenario.without(choice.rows, choice.items, choice.never_shown)


@dataclass(frozen=True)
class ListsOfRun:
    """Which lists of a run are made, with everything that a worker needs to know.

    level: alpha' to serve at, where there are no limits; None: that of the fit.
    protocol: of the evaluation whose lists these are, made after the training items; None: lists
        after everything in the log.
    users: (n,) codes of those who are served; None: everybody.
    worth: (n,) by which the values of each of them are multiplied; None: 1.
    choice: what some of them may not be shown; None: all that they have not taken.
    """

    run: Path
    length: int
    protocol: Protocol | None
    cache_dir: Path | None = None
    level: float | None = None
    limits: tuple[ResolvedLimit, ...] = ()
    users: NDArray[np.int64] | None = None
    feedback: bool = False
    worth: Tensor | None = None
    choice: ItemChoice | None = None

    def opened(self) -> tuple[Recommender, Scenario]:
        """The model that makes the lists, and the states of the users who are served."""
        model = self.model()
        dataset = ModelFolder(self.run).data().open(self.cache_dir)
        return model, self.scenario(model, dataset)

    def model(self) -> Recommender:
        model = ModelFolder(self.run).recommender(self.level)
        return model.with_limits(self.limits) if self.limits else model

    def scenario(self, model: Recommender, dataset: Dataset) -> Scenario:
        """The states of the users who are served."""
        if self.protocol is None:
            scenario = serving_scenario(dataset.log, model.queue_length)
        else:
            scenario = evaluation_scenario(dataset.split, model.queue_length, self.protocol)
        if self.users is not None:
            scenario = scenario.only(torch.from_numpy(self.users))
        return _narrowed(scenario, self.worth, self.choice)


@dataclass(frozen=True)
class ListsOfModel:
    """Which lists of a model of a whole log are made; fields as in `ListsOfRun`.

    limits: to serve under instead of those of the fit; None: those of the fit.
    item_table: a file with further columns of items.
    users: ids.
    """

    run: Path
    length: int
    cache_dir: Path | None = None
    level: float | None = None
    limits: tuple[Limit, ...] | None = None
    item_table: str | None = None
    users: tuple[object, ...] | None = None
    worth: Tensor | None = None
    choice: ItemChoice | None = None
    feedback = False

    def opened(self) -> tuple[Recommender, Scenario]:
        """The model that makes the lists, and the states of the users who are served."""
        state = self.state()
        return state.serving, self.scenario(state)

    def state(self) -> ServingState:
        """The users and items of the model, under the limits that are asked for."""
        state = open_model(self.run, cache_dir=self.cache_dir).state
        if self.limits is None:
            return state
        recommender, items = state.recommender, state.catalogue
        if self.level is not None:
            recommender = recommender.with_level(self.level)
        if self.item_table is not None:
            encoding = ModelFolder(self.run).data().encoding
            table = load_items(self.item_table, encoding=encoding)
            check_table(items.log, table, self.limits)
            both = merged_tables(table, items.table)
            items = Catalogue.from_log(items.log, both, items.new, area_km=items.area_km)
        return ServingState.from_recommender(recommender, state.users, items, self.limits)

    def scenario(self, state: ServingState) -> Scenario:
        """The states of the users who are served."""
        requests = Requests(find_users(state, self.users, None), None, RepeatRule())
        return _narrowed(request_scenario(state, requests, None), self.worth, self.choice)


@dataclass(frozen=True)
class RunBlock:
    """A task that makes one block of users, in the worker that it runs in."""

    lists: ListsOfRun | ListsOfModel
    number: int
    blocks: int

    def __call__(self) -> Any:
        with warnings.catch_warnings():
            # About the data; the main process has shown them.
            warnings.simplefilter("ignore")
            model, scenario = self.lists.opened()
        # Every worker divides the users in the same way, so that only a number has to be sent.
        rows = np.array_split(np.arange(scenario.n_users), self.blocks)[self.number]
        serving = model.in_blocks(feedback=self.lists.feedback)
        assert serving is not None
        own = scenario.only(torch.from_numpy(rows))
        return serving.block(own, self.lists.length, scenario.n_users)


@dataclass(frozen=True)
class ListsOfBlocks:
    """The lists of all blocks, and the messages that it took to make them keep limits together."""

    served: RankedLists
    blocks: int
    messages: Messages

    def __str__(self) -> str:
        sent, received = (round(n / 1000) for n in (self.messages.sent, self.messages.received))
        return (
            f"{self.blocks} blocks of users, {self.messages.calls:,} calls: "
            f"{sent:,} kB sent, {received:,} kB received"
        )


def served_in_blocks(
    lists: ListsOfRun | ListsOfModel, model: Recommender, n_users: int, engine: TaskEngine
) -> ListsOfBlocks | None:
    """The lists of a run, made in as many blocks of users as the engine has workers.

    model: that makes the lists.

    Returns None where one process should make them: few users, one worker, or a model that cannot
    work in blocks.
    """
    blocks = min(engine.workers, n_users // FEWEST_USERS)
    serving = model.in_blocks(feedback=lists.feedback) if blocks > 1 else None
    if serving is None:
        return None

    def serve(workers: WorkerBlocks) -> ListsOfBlocks:
        served = serving.serve_blocks(workers, lists.length)
        return ListsOfBlocks(served, blocks, workers.messages)

    return engine.over_blocks([RunBlock(lists, number, blocks) for number in range(blocks)], serve)
