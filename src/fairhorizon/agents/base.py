"""The two interfaces that everything further down speaks to: a recommender, and one at work."""

from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.environment.dynamics import Outcome, State
from fairhorizon.environment.feedback import Scenario
from fairhorizon.exposure.counts import Exposure


class Recommender(Interface):
    """What can be evaluated."""

    @property
    def method(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def fingerprint_(self) -> str: ...

    @property
    def alpha_prime(self) -> float: ...

    @property
    def queue_length(self) -> int: ...

    def recommend(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> NDArray[np.int64]: ...


class Server(Interface):
    """Whoever runs it owns state and exposure; the server owns what it learns.

    A step is `serve`, then `hear`; every so many steps comes an `update`.
    """

    @property
    def queue_length(self) -> int:
        """How much of a user's history it wants to see."""

    def serve(self, state: State, exposure: Exposure) -> Tensor:
        """(b, K) items for every user, -1 where nothing is left to show.

        Group labels of the moment are `exposure.sensitive`; it is up to the server how often it
        looks at them.
        """

    def hear(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:
        """What came of the lists just served; `outcome.state` is what the next step starts from.

        The exposure has counted the lists, their items still bear the labels they were shown under.
        """

    def update(self) -> None:
        """Learn from what was heard since the last update, where the method can."""

    def notes(self) -> dict[str, float]:
        """Numbers worth a column in the record of the last step, such as a price."""

    def tensors(self) -> dict[str, Tensor]:
        """All that changed since the run began; taken right after an update or the last `hear`."""

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        """Go on from `tensors` of another server of the same kind, users being in `state`."""
