"""Retraining in a long run, on the training log and all later likes."""

import torch
from torch import Tensor

from fairhorizon.data.splits import Split, with_feedback
from fairhorizon.errors import ConfigError
from fairhorizon.simulation.dynamics import Outcome


class Retraining:
    """Collects what users like; due after `round_length` items were shown to each."""

    def __init__(self, split: Split, round_length: int = 100) -> None:
        if round_length < 1:
            raise ConfigError(f"a round has at least one item, not {round_length}")
        self.split, self.round_length = split, round_length
        self.shown = 0  # to each user since the round began
        self._liked: list[Tensor] = []  # (2, n) users and items, one of each step

    def observe(self, lists: Tensor, outcome: Outcome) -> None:
        rows, slots = outcome.hits.nonzero(as_tuple=True)
        self._liked.append(torch.stack([outcome.state.users[rows], lists[rows, slots]]).cpu())
        self.shown += lists.shape[1]

    @property
    def due(self) -> bool:
        return self.shown >= self.round_length

    def extended(self) -> Split:
        """The data to fit on; starts a new round."""
        self.shown = 0
        users, items = self.liked().numpy()
        return with_feedback(self.split, users, items)

    def liked(self) -> Tensor:
        """(2, n) users and items, in the order observed."""
        return torch.cat([torch.empty(2, 0, dtype=torch.int64), *self._liked], dim=1)

    def tensors(self) -> dict[str, Tensor]:
        return {"liked": self.liked(), "shown": torch.tensor(self.shown)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self._liked, self.shown = [tensors["liked"].clone()], int(tensors["shown"])
