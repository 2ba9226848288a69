"""TFROM: two-sided fairness, of providers and of users (Wu et al., SIGIR 2021).

Yao Wu, Jian Cao, Guandong Xu and Yudong Tan: TFROM: A Two-sided Fairness-Aware Recommendation Model
for Both Customers and Providers. Every provider has a fair exposure; a place of rank r counts
1 / log2(1 + r). Lists are filled place by place. At each place the users choose one after the
other, first those whose lists so far have lost the most quality, and everyone gets the best item
whose provider stays within its fair exposure.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.rerank.online import Ledger, OnlineReranker, UserBatch

ROUNDING = 1e-6  # of a showing, after sums over all users


class Tfrom(OnlineReranker):
    """TFROM (Wu et al. 2021): the users with the worst lists choose first at every place.

    The fair exposure of the group is its target share of all exposure, that of the present batch
    included. With all users in one batch this is the paper's offline algorithm, with batches its
    online one, which counts the quality of all lists of a user so far: the DCG of the relevances,
    over that of the user's own best list. Target parity is the paper's uniform fairness, merit its
    quality-weighted one. `at-most` lets the rest have more than its fair exposure. Where no
    provider is within its fair exposure, the paper fills the place at the end, this at once.
    """

    method = "tfrom"

    batch: Annotated[int, Field(ge=0)] = 0
    """Number of users who arrive together; 0: all users, the offline algorithm."""

    def new_ledger(self, n_users: int) -> Ledger:
        return {
            "exposure": torch.zeros(2, dtype=torch.float64),
            "fair": torch.zeros(2, dtype=torch.float64),  # without the present batch
            "gained": torch.zeros(n_users, dtype=torch.float64),
            "ideal": torch.zeros(n_users, dtype=torch.float64),
        }

    def next(self, batch: UserBatch, ledger: Ledger) -> Tensor:
        weight = float(batch.weights[batch.place])
        wanted = batch.left.group_ahead(0.0)[:, 0]
        # What each side may still have: its share of the past and of this batch, less what it had.
        budget = ledger["fair"] + self._fair(batch) - ledger["exposure"]
        # In showings at this place. Rounded down after a tiny allowance for the rounding of sums.
        room = [int(left) for left in (budget / weight + ROUNDING).clamp(min=0).tolist()]
        order = self._worst_first(batch, ledger)
        place, users = batch.place, batch.users
        group = torch.empty_like(wanted)
        # Users choose in this order until a side has no room left.
        group[order] = self._within(wanted[order], room[0], room[1])
        items, relevances = batch.take(group)
        ledger["gained"][users] += weight * relevances.where(items >= 0, 0.0)
        # The quality of a list so far is its DCG over that of the user's best list of the same
        # length.
        ledger["ideal"][users] += weight * batch.best[:, place]
        of_group = weight * int(batch.group[:, place].sum())
        of_all = weight * int(batch.shown[:, place].sum())
        ledger["exposure"] += torch.tensor([of_group, of_all - of_group], dtype=torch.float64)
        return items

    def record(self, batch: UserBatch, ledger: Ledger) -> None:
        """Exposure was entered place by place; a place that stayed empty is no one's."""
        shares = torch.tensor([batch.target, 1 - batch.target], dtype=torch.float64)
        ledger["fair"] += shares * batch.exposure(batch.weights).sum()

    def _fair(self, batch: UserBatch) -> Tensor:
        """(2,) the fair exposure from the lists of this batch."""
        shares = torch.tensor([batch.target, 1 - batch.target], dtype=torch.float64)
        return shares * len(batch.users)

    def _worst_first(self, batch: UserBatch, ledger: Ledger) -> Tensor:
        """(b,) the rows of the users by the quality of their lists, equal ones as they arrive."""
        gained, ideal = ledger["gained"][batch.users], ledger["ideal"][batch.users]
        return (gained / ideal).where(ideal > 0, 1.0).sort(stable=True).indices

    def _within(self, wanted: Tensor, of_group: int, of_rest: int) -> Tensor:
        """(b,) who gets an item of the group, in the order in which they choose."""
        group = wanted & (wanted.cumsum(0) <= of_group)
        if self.form == "at-most":
            return group
        # Equal shares bind both sides. Users for whom the rest has no room go to the group as far
        # as it has room; where neither has, they get what they prefer.
        others = ~group
        late = others & (others.cumsum(0) > of_rest)
        moved = late & (late.cumsum(0) <= of_group - int(group.sum()))
        return group | moved | (late & ~moved & wanted)
