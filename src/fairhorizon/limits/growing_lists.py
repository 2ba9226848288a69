"""Exposure of whole lists that are made a few places at a time."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.limits.counts import Exposure


class GrowingLists(Exposure):
    """What is shown in lists of the same users, which every step makes longer, under fixed groups.

    A showing counts at its place in the whole list, so that limits by place and limits on every
    list hold for the lists as users see them.

    group: (n_items,) bool, the group that stays.
    length: how long the lists are to be.
    """

    def __init__(self, group: NDArray[np.bool_], n_users: int, length: int) -> None:
        super().__init__(np.zeros(len(group), np.int64), lambda _: group)
        self.lists = torch.empty(n_users, 0, dtype=torch.int64)
        self.length = length

    def begun(self, n_users: int) -> Tensor:  # noqa: ARG002  # the same in every step
        return self.lists

    def list_length(self, step: int) -> int:
        return max(self.length, self.lists.shape[1] + step)  # what is too long is cut

    def add(self, lists: Tensor) -> None:
        lists = lists.cpu()
        counted = torch.cat([torch.full_like(self.lists, -1), lists], dim=1)
        super().add(counted)
        self.lists = torch.cat([self.lists, lists], dim=1)
