"""The replay buffer D of the paper's Algorithm 1."""

from collections import deque
from typing import Any

import torch
from torch import Tensor

from fairhorizon.fcpo.learning.trajectories import Trajectories
from fairhorizon.storage import below


class ReplayBuffer:
    """The trajectories of the most recent rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds: deque[Trajectories] = deque(maxlen=rounds)

    def add(self, trajectories: Trajectories) -> None:
        self.rounds.append(trajectories)

    def sample(self, size: int, generator: torch.Generator) -> Trajectories:
        """Line 14: a minibatch of at most `size` trajectories, without replacement."""
        everything = Trajectories.join(list(self.rounds))
        if size >= len(everything):
            return everything
        return everything.take(torch.randperm(len(everything), generator=generator)[:size])

    def tensors(self) -> dict[str, Tensor]:
        """What later rounds sample from; on-policy training reuses nothing."""
        if self.rounds.maxlen == 1:
            return {}
        return {
            f"{position}.{name}": value
            for position, trajectories in enumerate(self.rounds)
            for name, value in vars(trajectories).items()
            if isinstance(value, Tensor)  # a policy over items, which has menus too, is on-policy
        }

    def restore(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Continue from the `tensors` of another buffer."""
        self.rounds.clear()
        for position in range(self.rounds.maxlen or 0):
            if stored := below(f"{position}.", tensors):
                columns: dict[str, Any] = {name: v.to(device) for name, v in stored.items()}
                self.add(Trajectories(**columns))
