"""Items that a user has not taken, drawn for many users at once."""

import torch
from torch import Tensor

from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems


class NegativeSampler:
    """Draws uniformly from what a user has not taken, exactly and without trying again.

    Let p_0 < p_1 < ... be a user's items. Before p_k there are p_k - k others, so the r-th of the
    others (from 0) is r + #{k: p_k - k <= r}. One sorted array holds the p_k - k of all users.
    """

    def __init__(self, taken: UserItems) -> None:
        counts = taken.indptr.diff()
        users = torch.arange(taken.n_users).repeat_interleave(counts)
        keys = (users * taken.n_items + taken.items).sort().values  # p_k, user after user
        within = torch.arange(len(keys)) - taken.indptr[:-1][users]  # k
        self.room = taken.n_items - counts  # (n_users,) how many others there are
        self._span = taken.n_items + 1  # p_k - k <= n_items - 1, r <= n_items - 1
        self._first = taken.indptr[:-1]
        self._others_before = keys - users * taken.n_items - within + users * self._span

    def can_draw(self, users: Tensor) -> Tensor:
        """Which of the users have not taken every item."""
        return self.room[users] > 0

    def draw(self, users: Tensor, generator: torch.Generator) -> Tensor:
        """An item for each entry of `users`, in any order and with repeats; sorted is fastest."""
        room = self.room[users]
        if len(room) and not room.min():
            raise DataError("a user has taken every item: there is no other to draw")
        uniform = torch.rand(len(users), generator=generator, dtype=torch.float64)
        nth = (uniform * room).long()
        taken = torch.searchsorted(self._others_before, users * self._span + nth, right=True)
        return nth + taken - self._first[users]
