"""The users of a long run: those of the log, or simulated ones."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairhorizon.data.sources import market_of
from fairhorizon.environment.feedback import UserModel, evaluation_scenario
from fairhorizon.environment.response import ResponseConfig, ResponseModel, fit_response
from fairhorizon.environment.simulated import SimulatedUsers, SimulationConfig
from fairhorizon.errors import ModelError
from fairhorizon.experiments.datasets import DataSpec, key_of, opened
from fairhorizon.results.studies import TrainingRow
from fairhorizon.storage import load_model, save_model
from fairhorizon.vocabulary import Protocol

RESPONSE = "response"  # the kind of file that a response model is kept in


@dataclass(frozen=True)
class UserSource:
    """Where users come from, and where their response model is kept."""

    data: DataSpec
    cache_dir: Path | None
    folder: Path  # for models
    protocol: Protocol

    def users(self, simulation: SimulationConfig | None, queue_length: int, seed: int) -> UserModel:
        """Users who like their test items; with a simulation, users who follow a response model."""
        split = opened(self.data, self.cache_dir).split
        if simulation is None:
            return evaluation_scenario(split, queue_length, self.protocol)
        return SimulatedUsers.of_split(
            self.response(), split, queue_length, self.protocol, simulation, seed
        )

    def response(self) -> ResponseModel:
        """The truth of a synthetic market, else what was fitted to the items held out, and kept."""
        market = market_of(self.data.source)
        if market is not None:
            return ResponseModel.of_market(market)
        config = ResponseConfig()
        key = key_of(self.data, self.cache_dir, "response", config.model_dump(mode="json"))
        file = self.folder / f"response-{key}.safetensors"
        try:
            return ResponseModel(**load_model(file, RESPONSE)[0])
        except ModelError:
            pass  # not fitted yet
        response = fit_response(opened(self.data, self.cache_dir).split, config)
        save_model(file, RESPONSE, vars(response), config.model_dump(mode="json"))
        return response


@dataclass(frozen=True)
class ResponseFit:
    """The response model of simulated users to be fitted and kept."""

    source: UserSource

    def prepare(self) -> None:
        opened(self.source.data, self.source.cache_dir)

    def rows(self) -> Iterator[TrainingRow]:
        begin = time.perf_counter()
        self.source.response()
        yield TrainingRow("simulated users", time.perf_counter() - begin)
