"""P-MMF: provider max-min fairness by dual mirror descent (Xu et al., WWW 2023).

Chen Xu, Sirui Chen, Jun Xu, Weiran Shen, Xiao Zhang, Gang Wang and Zhenhua Dong: P-MMF: Provider
Max-min Fairness Re-ranking in Recommender System. Over all users who arrive,

    maximise   sum of relevances + lambda min_p e_p / gamma_p    subject to   e_p <= gamma_p

with e_p the share of exposure of provider p. The dual variables mu_p are prices: a user's list is
the K items of the highest relevance - mu_p, shown in the order of relevance. After a batch of users
with exposure e,

    g  = alpha (gamma - e) + (1 - alpha) g                                           (momentum)
    mu = argmin_{mu in D} <g, mu> + |mu - mu'|^2 / (2 eta),   |x|^2 = sum_p gamma_p^2 x_p^2
    D  = {mu: sum_{p in S} gamma_p mu_p >= -lambda for every set S of providers}

In nu_p = gamma_p mu_p the step is nu - eta g / gamma and then a plain projection.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.rerank.online import Ledger, OnlineReranker, UserBatch


class Pmmf(OnlineReranker):
    """P-MMF (Xu et al. 2023): prices by online dual descent, for the worst-off provider.

    gamma is the target share of exposure of the group and of the rest, q and 1 - q. `at-most` is
    for a limit on the group alone: the rest may have more than 1 - q, and only the rest has a
    claim to be lifted, so that the price of the group is at least 0 and that of the rest between
    -lambda / (1 - q) and 0. The paper updates after every user, this after every batch; the paper
    no longer shows a provider that used up e_p <= gamma_p, here its price alone keeps it back.
    """

    method = "pmmf"

    strength: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the exposure of the worst-off provider beside the sum of relevances (lambda)."""
    rate: Annotated[float, Field(gt=0)] = 0.01
    """Step size of the dual variables (eta)."""
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Weight of the newest batch in the gradient (alpha); 1: no momentum."""
    warm_up_batches: Annotated[int, Field(ge=0)] = 200
    """Least number of batches served in warm_up_batches before lists of all users are made."""

    def new_ledger(self, n_users: int) -> Ledger:  # noqa: ARG002
        return {name: torch.zeros(2, dtype=torch.float64) for name in ("mu", "gradient")}

    def price(self, target: float, ledger: Ledger) -> float:
        """mu of the group less mu of the rest: what is between them is all that matters."""
        fixed = self.price_at_the_ends(target)
        return float(ledger["mu"][0] - ledger["mu"][1]) if fixed is None else fixed

    def next(self, batch: UserBatch, ledger: Ledger) -> Tensor:
        """The most relevant of the items that the places left are for."""
        price, left = self.price(batch.target, ledger), batch.left
        # The R places left go to the R items with the highest relevance less price. The i-th best
        # of the group is among them if it beats the (R - i + 1)-th best of the rest, so no sort is
        # needed.
        in_list = left.group_ahead(price, reverse=True).sum(1)
        places = left.items.shape[2]
        # Of the items of the list, the most relevant comes next, without the price: it decides
        # which items are in the list, not their order.
        return batch.take((in_list == places) | ((in_list > 0) & left.group_ahead(0.0)[:, 0]))[0]

    def lists(self, batch: UserBatch, ledger: Ledger) -> Tensor:
        lists = batch.take_all(self.price(batch.target, ledger), shown_at_price=False)
        self.record(batch, ledger)
        return lists

    def record(self, batch: UserBatch, ledger: Ledger) -> None:
        exposure = batch.exposure()
        total = float(exposure.sum())
        if self.price_at_the_ends(batch.target) is not None or total == 0:
            return
        gamma = torch.tensor([batch.target, 1 - batch.target], dtype=torch.float64)
        # The gradient of the dual: what each provider should have less what it had, in shares.
        slack = gamma - exposure / total
        gradient = self.momentum * slack + (1 - self.momentum) * ledger["gradient"]
        nu = gamma * ledger["mu"] - self.rate * gradient / gamma
        ledger["gradient"] = gradient
        ledger["mu"] = self.projected(nu) / gamma

    def projected(self, nu: Tensor) -> Tensor:
        """The nearest point of the domain D, for two providers."""
        if self.form == "at-most":
            return torch.stack([nu[0].clamp(min=0.0), nu[1].clamp(-self.strength, 0.0)])
        nearest = nu.clamp(min=-self.strength)
        excess = -self.strength - float(nearest.sum())
        # In nu the set D is nu_p >= -lambda and nu_1 + nu_2 >= -lambda. Beyond the second, the
        # nearest point lies on the edge between (-lambda, 0) and (0, -lambda), or at its ends.
        if excess > 0:
            along = float(nu[0] - nu[1]) / 2
            first = min(0.0, max(-self.strength, along - self.strength / 2))
            nearest = torch.tensor([first, -self.strength - first], dtype=torch.float64)
        return nearest
