"""Items that a user has not taken, drawn for many users at once."""

import torch
from torch import Tensor

from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems

MASK_AT_MOST = 2**27  # pairs of a user and an item: 128 MiB


class NegativeSampler:
    """Draws uniformly from the items that a user has not taken.

    First any item is drawn; if the user has taken it, the draw is repeated among the others alone,
    which is exact but slower. Let p_0 < p_1 < ... be a user's items. Before p_k there
    are p_k - k others, so the r-th of the others (from 0) is r + #{k: p_k - k <= r}. One sorted
    array holds the p_k - k of all users. Where a mask of all pairs would be too large, every draw
    is made that way.
    """

    def __init__(self, taken: UserItems) -> None:
        counts = taken.indptr.diff()
        users = torch.arange(taken.n_users).repeat_interleave(counts)
        keys = (users * taken.n_items + taken.items).sort().values  # p_k, user after user
        within = torch.arange(len(keys)) - taken.indptr[:-1][users]  # k
        self.n_items = taken.n_items
        self._taken: Tensor | None = None  # (n_users * n_items,) bool
        if taken.n_users * taken.n_items <= MASK_AT_MOST:
            self._taken = taken.mask(torch.arange(taken.n_users)).flatten()
        self.room = taken.n_items - counts  # (n_users,) number of others
        self._span = taken.n_items + 1  # p_k - k <= n_items - 1, r <= n_items - 1
        self._first = taken.indptr[:-1]
        self._others_before = keys - users * taken.n_items - within + users * self._span

    def can_draw(self, users: Tensor) -> Tensor:
        """Which of the users have not taken every item."""
        return self.room[users] > 0

    def examples(self, taken: UserItems) -> tuple[Tensor, Tensor]:
        """Each user and taken item, without users who took all items: they have no negatives."""
        users = torch.arange(taken.n_users).repeat_interleave(taken.indptr.diff())
        useful = self.can_draw(users)
        if not useful.any():
            raise DataError(
                "every user took all items or none, so there are no negative examples",
                remedy="use a ranker that needs no negative examples, such as popularity",
            )
        return users[useful], taken.items[useful]

    def draw(self, users: Tensor, generator: torch.Generator) -> Tensor:
        """An item for each entry of `users`, in any order and with repeats; sorted is fastest."""
        if len(users) and not self.can_draw(users).all():
            raise DataError("a user has taken every item: there is no negative example to draw")
        if self._taken is None:
            return self._draw_among_others(users, generator)
        items = torch.randint(self.n_items, users.shape, generator=generator)
        again = self._taken[users * self.n_items + items].nonzero().squeeze(1)
        items[again] = self._draw_among_others(users[again], generator)
        return items

    def _draw_among_others(self, users: Tensor, generator: torch.Generator) -> Tensor:
        uniform = torch.rand(len(users), generator=generator, dtype=torch.float64)
        nth = (uniform * self.room[users]).long()
        taken = torch.searchsorted(self._others_before, users * self._span + nth, right=True)
        return nth + taken - self._first[users]
