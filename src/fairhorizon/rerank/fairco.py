"""FairCo: a controller that helps the group behind (Morik et al., SIGIR 2020).

Marco Morik, Ashudeep Singh, Jessica Hong and Thorsten Joachims: Controlling Fairness and Bias in
Dynamic Learning-to-Rank. With E_G the exposure of group G in the first tau - 1 rankings, a place of
rank r counting 1 / log2(1 + r), and M_G its merit:

    D(G', G) = (E_G' / M_G' - E_G / M_G) / (tau - 1)
    rank tau = sort by R(d) + lambda err(d),    err(d) = (tau - 1) max_G' D(G', G(d))
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.rerank.online import Ledger, OnlineReranker, UserBatch


class FairCo(OnlineReranker):
    """FairCo (Morik et al. 2020): the group behind in exposure per merit is moved up.

    The merits are the target shares of exposure of the group and of the rest, q and 1 - q. Exposure
    is in lists: that of a whole list is 1. With two groups err is the difference for the one that
    is behind and 0 for the other, so that it is a price on the group ahead; `at-most` never moves
    the limited group up. The paper updates after every user, this after every batch.
    """

    method = "fairco"

    strength: Annotated[float, Field(ge=0)] = 0.002
    """Relevance that a lead of one list's exposure per merit is worth (lambda)."""
    warm_up_batches: Annotated[int, Field(ge=0)] = 100
    """Least number of batches served in warm_up_batches before lists of all users are made."""

    def new_ledger(self, n_users: int) -> Ledger:  # noqa: ARG002
        return {"exposure": torch.zeros(2, dtype=torch.float64)}

    def price(self, target: float, ledger: Ledger) -> float:
        """What is subtracted from the relevance of the group: lambda times its lead."""
        if self.strength == 0:
            return 0.0
        # At a target of 0 or 1 one of the divisions below would be by 0.
        fixed = self.price_at_the_ends(target)
        if fixed is not None:
            return fixed
        of_group, of_rest = ledger["exposure"].tolist()
        # (tau - 1) D, as exposure is summed and not averaged: the factor of err cancels the divisor
        # of D.
        lead = of_group / target - of_rest / (1 - target)
        return self.strength * float(max(0.0, lead) if self.form == "at-most" else lead)

    def next(self, batch: UserBatch, ledger: Ledger) -> Tensor:
        price = self.price(batch.target, ledger)
        return batch.take(batch.left.group_ahead(price)[:, 0])[0]

    def lists(self, batch: UserBatch, ledger: Ledger) -> Tensor:
        lists = batch.take_all(self.price(batch.target, ledger), shown_at_price=True)
        self.record(batch, ledger)
        return lists

    def record(self, batch: UserBatch, ledger: Ledger) -> None:
        ledger["exposure"] += batch.exposure(batch.weights)
