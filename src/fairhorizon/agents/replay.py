"""The replay buffer D of the paper's Algorithm 1."""

from collections import deque

import torch

from fairhorizon.agents.rollout import Trajectories


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
