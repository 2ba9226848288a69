"""Requests one after the other: the limits hold over all of them, after every one."""

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import polars as pl
import torch

from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.errors import ConfigError
from fairhorizon.model.answers import barred, frame_of, length_of, persons_of, scenario_of
from fairhorizon.model.requests import RepeatRule, Requests
from fairhorizon.recommenders.base import Recommender
from fairhorizon.vocabulary import ListValue

if TYPE_CHECKING:
    from fairhorizon.model.model import Model


class ModelServer:
    """Serves the users of a model one by one, made by `Model.server`.

    After every request the limits hold for everything that was shown so far. May be called from
    several threads.
    """

    def __init__(
        self,
        model: "Model",
        guard: ExposureGuard | None = None,
        *,
        value: str = ListValue.NDCG,
    ) -> None:
        recommender = model._state.recommender
        if not recommender.abilities.requests:
            raise ConfigError(
                f"{recommender.method} does not serve one request after the other (use fcpo)"
            )
        model.outlook_for(value)  # refuses what the model has not learned
        self._model, self._guard, self._making, self._value = model, guard, Lock(), value

    @property
    def guard(self) -> ExposureGuard | None:
        """What counts the showings and keeps the limits; None before the first request."""
        return self._guard

    def recommend(
        self,
        user: Any = None,
        k: int = 10,
        *,
        history: Sequence[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        candidates: Iterable[Any] | None = None,
        repeats: str | None = None,
    ) -> pl.DataFrame:
        """The list of one user, counted: later requests get what the limits leave.

        user: the id of a user of the log, or observed since.
        k: the length of the list.
        history: for somebody who is not in the log, the items that they took, oldest first.
        exclude, candidates, repeats: as in `Model.recommend`.

        Returns a frame as `Model.recommend` does.
        """
        state = self._model._state
        if history is None:
            asked = persons_of(state, [user], None)
        else:
            asked = persons_of(state, None, {"" if user is None else user: history})
        shut = barred(state, exclude, candidates)
        requests = Requests(asked, shut, RepeatRule.parse(repeats))
        length = min(length_of(k), state.n_items)
        guard = self._guarding(state.serving, length)
        with torch.inference_mode():
            scenario = scenario_of(state, requests, self._model.outlook_for(self._value))
            served = state.serving.served_one_by_one(scenario, length, guard)
        return frame_of(state, asked, served)

    def _guarding(self, recommender: Recommender, length: int) -> ExposureGuard:
        """The one guard of this server; its first price is for lists of the first length."""
        with self._making:
            if self._guard is None:
                self._guard = recommender.request_guard(length)
            return self._guard
