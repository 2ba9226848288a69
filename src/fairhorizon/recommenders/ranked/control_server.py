"""A ranker in a long run under limits that hold after every step."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.errors import ConfigError
from fairhorizon.histories import check_table
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import StepLimit
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.lists.items import ExpertSignals, PanelItems
from fairhorizon.recommenders.ranked.stored import ranker_tensors, restored_ranker
from fairhorizon.recommenders.ranked.variety import Variety
from fairhorizon.recommenders.retraining import Retraining
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.storage import below


class ControlServer:
    """Serves by the standardised scores of a ranker, at the prices that keep the limits.

    What users like changes the scores of a ranker that reads histories at once. With `retraining`
    the ranker is fitted again at the first update after every round. With `variety` the scores
    depend on the kinds of items that a user was shown lately.
    """

    def __init__(
        self,
        ranker: Ranker[Any],
        limits: Sequence[StepLimit],
        *,
        list_length: int = 1,
        retraining: Retraining | None = None,
        variety: Variety | None = None,
    ) -> None:
        if list_length < 1:
            raise ConfigError(f"list_length {list_length} must be at least 1")
        self.ranker = self._first_ranker = ranker
        self.limits, self.control = tuple(limits), OnlineControl(limits)
        self.list_length, self.retraining, self.variety = list_length, retraining, variety
        # of the users, once they are served: by the only ranker, whose weight is 1
        self._signals: ExpertSignals | None = None

    @property
    def queue_length(self) -> int:
        return max(1, self._first_ranker.queue_length)

    @property
    def remarks(self) -> Sequence[str]:
        return ()

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:
        if self._signals is None:
            self._signals = self._look(state)
        (values,) = self._signals.values
        slots = [values.masked_fill(state.blocked, -torch.inf)] * self.list_length
        if self.variety is None:
            return self.control.choose(slots, exposure)
        self.variety.begin(len(state.users))
        return self.control.choose(slots, exposure, self.variety.handicap)

    @torch.no_grad()
    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        assert self._signals is not None
        if self.retraining is not None:
            self.retraining.observe(lists, outcome)
        if self.variety is not None:
            self.variety.observe(lists)
        rows = (outcome.reward > 0).nonzero().squeeze(1)
        if self.ranker.queue_length and len(rows):
            state = outcome.state
            self._signals.refresh(rows, state.users[rows], state.queue[rows])

    def update(self) -> None:
        """Fit the ranker again where a round is over."""
        if self.retraining is not None and self.retraining.due:
            first = self._first_ranker  # the caller's is not changed
            fresh = type(first)(first.config, seed=first.seed)
            self.ranker = fresh.fit(self.retraining.extended())
            self._signals = None

    def notes(self) -> dict[str, float]:
        """The price of every limit in the last step."""
        return {f"price of {name}": price for name, price in self.control.prices.items()}

    def tensors(self) -> dict[str, Tensor]:
        parts = {"control": self.control.tensors()}
        if self._signals is not None:
            # computed for other users at a time, they would differ in the last digits
            parts["signals"] = {"values": self._signals.values[0]}
        if self.retraining is not None:
            parts["retraining"] = self.retraining.tensors()
        if self.variety is not None:
            parts["variety"] = self.variety.tensors()
        if self.ranker is not self._first_ranker:
            parts["ranker"] = ranker_tensors(self.ranker)
        return {
            f"{part}.{name}": value.detach().clone()
            for part, some in parts.items()
            for name, value in some.items()
        }

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        self.control.restore(below("control.", tensors))
        if self.retraining is not None:
            self.retraining.restore(below("retraining.", tensors))
        if self.variety is not None:
            self.variety.restore(below("variety.", tensors))
        refitted = below("ranker.", tensors)
        first = self._first_ranker
        self.ranker = restored_ranker(refitted, first) if refitted else first
        self._signals = None
        if "signals.values" in tensors:
            self._signals = self._look(state)
            self._signals.values = [tensors["signals.values"].clone()]

    def _look(self, state: State) -> ExpertSignals:
        check_table(*state.blocked_sets.shape, "serving step by step under limits")
        no_group = torch.zeros(state.blocked_sets.shape[1], dtype=torch.bool)  # the control knows
        items = PanelItems(Ensemble((self.ranker,), (1.0,)), 0, 0, priced=False)
        return items.look(state.users, state.queue, no_group.to(state.users.device))
