"""The interface of a recommender at work in a long run."""

from collections.abc import Sequence
from typing import Protocol as Interface

from torch import Tensor

from fairhorizon.limits.counts import Exposure
from fairhorizon.simulation.dynamics import Outcome, State


class Server(Interface):
    """A recommender at work in a long run.

    Whoever runs it owns state and exposure; the server owns what it learns. A step is `serve`, then
    `observe`; every so many steps comes an `update`.
    """

    @property
    def queue_length(self) -> int:
        """How much of a user's history it wants to see."""

    @property
    def remarks(self) -> Sequence[str]:
        """Warnings so far, such as that a target could not be reached."""

    def serve(self, state: State, exposure: Exposure) -> Tensor:
        """(b, K) items for every user, -1 where nothing is left to show.

        Group labels of the moment are `exposure.sensitive`; it is up to the server how often it
        looks at them.
        """

    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:
        """What came of the lists just served; `outcome.state` is what the next step starts from.

        The exposure has counted the lists, their items still have the labels they were shown under.
        """

    def update(self) -> None:
        """Learn from what was observed since the last update, where the method can."""

    def notes(self) -> dict[str, float]:
        """Numbers for the record of the last step, such as a price."""

    def tensors(self) -> dict[str, Tensor]:
        """A copy of all that changed since the run began; taken right after an update."""

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        """Go on from `tensors` of another server of the same kind, users being in `state`."""
