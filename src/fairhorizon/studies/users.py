"""The users of a long run: those of the log, or simulated ones."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fairhorizon.data.synthetic import market_of
from fairhorizon.datasets import item_attribute, key_of
from fairhorizon.errors import ModelError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.files import write_json
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.groups import attribute_values, values_of_items
from fairhorizon.methods import Method
from fairhorizon.simulation.churn import ChurnConfig, calibrated_like_adds
from fairhorizon.simulation.feedback import UserModel, evaluation_scenario
from fairhorizon.simulation.response import ResponseConfig, ResponseModel, fit_response
from fairhorizon.simulation.simulated import SimulatedUsers, SimulationConfig
from fairhorizon.storage import load_model, save_model
from fairhorizon.studies.rows import TrainingRow
from fairhorizon.studies.study import Study, Task

RESPONSE = "response"  # the kind of file that a response model is kept in
MEASURE = Method("stack")  # whoever serves users when their patience is calibrated,
CALIBRATED_AFTER = 60  # for so many steps, one item each and without a limit
STILL_THERE = 0.5  # of the users after them


@dataclass(frozen=True)
class UserSource:
    """Where users come from, and where their response model is kept."""

    study: Study
    item_table: str | None = None  # with the kinds of items

    @property
    def folder(self) -> Path:
        return self.study.folder / "models"

    def users(self, simulation: SimulationConfig | None, queue_length: int, seed: int) -> UserModel:
        """Users who like their test items; with a simulation, users who follow a response model."""
        split, protocol = self.study.dataset().split, self.study.protocol
        if simulation is None:
            return evaluation_scenario(split, queue_length, protocol)
        settled, response = self.settled(simulation), self.response()
        kinds = self.kinds(settled.churn)
        return SimulatedUsers.of_split(
            response, split, queue_length, protocol, settled, seed, kinds
        )

    def response(self) -> ResponseModel:
        """The truth of a synthetic market, else what was fitted to the items held out, and kept."""
        market = market_of(self.study.data.source)
        if market is not None:
            return ResponseModel.of_market(market)
        config = ResponseConfig()
        file = self.folder / f"response-{self._key('response', config)}.safetensors"
        try:
            return ResponseModel(**load_model(file, RESPONSE)[0])
        except ModelError:
            pass  # not fitted yet
        response = fit_response(self.study.dataset().split, config)
        save_model(file, RESPONSE, vars(response), config.model_dump(mode="json"))
        return response

    def settled(self, simulation: SimulationConfig) -> SimulationConfig:
        """With what a like adds to patience, so that half of the users stay for 60 steps.

        They are served by `stack` with its own settings, without a limit. Who stays would get the
        same lists whatever the others do, so one run of users who never leave is enough.
        """
        churn = simulation.churn
        if churn is None or churn.patience is None or churn.like_adds is not None:
            return simulation
        steady = simulation.model_copy(update={"churn": None})
        file = self.folder / f"patience-{self._key('patience', churn, steady)}.json"
        try:
            like_adds = float(json.loads(file.read_text(encoding="utf-8"))["like_adds"])
        except (OSError, ValueError, KeyError):
            like_adds = self._calibrate(churn, steady)
            write_json(file, {"like_adds": like_adds, "served_by": MEASURE.name})
        changed = churn.model_copy(update={"like_adds": like_adds})
        return simulation.model_copy(update={"churn": changed})

    def _calibrate(self, churn: ChurnConfig, steady: SimulationConfig) -> float:
        dataset = self.study.dataset()
        study = replace(self.study, settings={})
        model, _ = Task(study, (MEASURE,), 0).trained(dataset)
        server = model.server([], list_length=1)
        users = self.users(steady, server.queue_length, seed=0)
        settings = LongRunSettings(steps=CALIBRATED_AFTER)
        run = LongRun(server, users, Exposure(dataset.split.train.item_counts()), settings)
        counts = [(run.likes_of_users(), run.showings_of_users())]
        while not run.finished:
            run.step()
            counts.append((run.likes_of_users(), run.showings_of_users()))
        liked, shown = (torch.stack(part).diff(dim=0) for part in zip(*counts, strict=True))
        most = churn.drawn_patience(users.n_users).most
        return calibrated_like_adds(liked, shown, most, STILL_THERE)

    def kinds(self, churn: ChurnConfig | None) -> Tensor | None:
        """What users are sated or bored by; None if by nothing."""
        if churn is None or not churn.needs_kinds:
            return None
        return self.kinds_by(churn.by)

    def kinds_by(self, column: str) -> Tensor:
        """(n_items, kinds) the part that each value of a column has in an item."""
        study = self.study
        cells = item_attribute(study.data, self.item_table, column, study.cache_dir)
        names = {name: n for n, name in enumerate(attribute_values(cells))}
        kinds = np.zeros((len(cells), len(names)), dtype=np.float32)
        for item, values in enumerate(values_of_items(cells)):
            for value in values:
                kinds[item, names[value]] = 1 / len(values)
        return torch.from_numpy(kinds)

    def _key(self, what: str, *settings: ResponseConfig | ChurnConfig | SimulationConfig) -> str:
        described = [one.model_dump(mode="json") for one in settings]
        own = described[0] if len(described) == 1 else described
        return key_of(self.study.data, self.study.cache_dir, what, own)


@dataclass(frozen=True)
class WorldFit:
    """The response model of simulated users to be fitted, their patience calibrated, and kept."""

    source: UserSource
    simulation: SimulationConfig

    def prepare(self) -> None:
        self.source.study.dataset()

    def rows(self) -> Iterator[TrainingRow]:
        begin = time.perf_counter()
        self.source.response()
        self.source.settled(self.simulation)
        yield TrainingRow("simulated users", time.perf_counter() - begin)
