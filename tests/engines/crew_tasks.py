"""Work for crews in tests, and what a trained model is compared by; ranks import it from here."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fairhorizon.agents.crew import Meeting
from fairhorizon.agents.fcpo.learning.ranks import Ranks
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.data.splits import Split
from fairhorizon.environment.feedback import evaluation_scenario
from fairhorizon.errors import ConfigError, FairHorizonError
from fairhorizon.vocabulary import Protocol

WRONG = "the setting is wrong"


@dataclass(frozen=True)
class Once:
    """Sums and agrees with the others; then rank 1 does something that rank 0 waits for in vain."""

    at_last: str

    def rows(self, meeting: Meeting) -> Iterator[list[float]]:
        with Ranks(meeting) as ranks:
            mine = [torch.tensor([1.0, meeting.rank]), torch.tensor(meeting.rank**2)]
            vector, number = ranks.sum(mine)
            yield [*vector.tolist(), number.item()]
            own = [torch.full((2,), meeting.rank + 0.5), torch.tensor(meeting.rank + 7)]
            ranks.agree(own)
            yield [*own[0].tolist(), own[1].item()]
            if meeting.rank == 1 and self.at_last == "complain":
                raise ConfigError(f"{WRONG} (set another)")
            if meeting.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            ranks.sum(mine)


def parameters(model: Fcpo) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.policy_.actor.parameters()])


def lists(model: Fcpo, market: Split) -> Any:
    scenario = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    return model.recommend(scenario, length=8)


def check(
    rows: Iterator[list[float]], kind: type[Exception] = FairHorizonError, text: str = WRONG
) -> None:
    """The sums of two ranks, what rank 0 had, and then the error of rank 1."""
    assert next(rows) == [2.0, 1.0, 1]  # 1 + 1, 0 + 1, 0² + 1²
    assert next(rows) == [0.5, 0.5, 7]
    with pytest.raises(kind, match=text):
        next(rows)
