"""Prices of a group's showings by level, for users who are served one at a time.

Lists that are made together keep a limit exactly, at a price found on them (joint_lists.py). To
serve a user alone, the price has to be known beforehand:

    list:  the best items by value - price * [in the group], shown in the order of value
    price: that at which such lists, made for the validation states, have the share of the limit

The c-th best item of the group is in a list of L if its value exceeds that of the (L - c + 1)-th
best other, which it replaces, by more than the price. So the price is a quantile of such margins.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.exchange import exchange_gains
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.metrics.shares import whole_showings
from fairhorizon.ranking import best_first, top


@dataclass(frozen=True)
class PriceTable:
    """Prices for some lengths of lists and some levels; in between they are interpolated."""

    lengths: Tensor  # (m,) float64, rising
    levels: Tensor  # (n,) float64, rising
    prices: Tensor  # (m, n) float64 in units of the values, never rising with the level

    def price(self, alpha_prime: float, length: int) -> float:
        """What a level takes off the value of a showing; it never rises with the level."""
        levels, logarithms = self.levels.numpy(), self.lengths.log().numpy()
        at_level = [np.interp(alpha_prime, levels, row) for row in self.prices.numpy()]
        return float(np.interp(np.log(max(length, 1)), logarithms, at_level))

    def tensors(self) -> dict[str, Tensor]:
        parts = {"lengths": self.lengths, "levels": self.levels, "prices": self.prices}
        return {f"price_table.{name}": tensor for name, tensor in parts.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "PriceTable":
        return cls(*(tensors[f"price_table.{name}"] for name in ("lengths", "levels", "prices")))


def prices_at(levels: Tensor, margins: Tensor, shown: int) -> Tensor:
    """(n,) prices at which lists with these margins, `shown` items in all, have the shares (n,).

    0 where the lists have less of the group anyway.
    """
    falling = margins[margins > 0].sort(descending=True).values
    # infinite margins fill a list at any price: no price needs to be above the finite ones
    finite = falling[falling.isfinite()]
    falling = falling.clamp(max=float(finite[0]) if len(finite) else 0.0)
    allowed = [whole_showings(level * shown) for level in levels.tolist()]
    first_refused = torch.tensor(allowed, dtype=torch.int64).clamp(max=len(falling))
    return torch.cat([falling, falling.new_zeros(1)])[first_refused]


def margins(candidates: Candidates, sensitive: Tensor, length: int) -> Tensor:
    """(b, length) by how much the value of the c-th best of the group exceeds what it replaces.

    Infinite where no other item is left to fill the list, -inf where the group has no c-th item.
    """
    values, in_group = _values(candidates, sensitive)
    group, others = (
        _best(values.masked_fill(~side, -torch.inf), length) for side in (in_group, ~in_group)
    )
    sizes = (values > -torch.inf).sum(1).clamp(max=length)
    return torch.from_numpy(exchange_gains(group.numpy(), others.numpy(), sizes.numpy()))


def lists_at_price(
    candidates: Candidates, sensitive: Tensor, *, price: float, length: int
) -> Tensor:
    """(b, length) each user's list at a given price, best value first; -1 where nothing is left."""
    values, in_group = _values(candidates, sensitive)
    _, columns = top(torch.where(in_group, values - price, values), length)
    values, items = best_first(values.gather(1, columns), candidates.items.gather(1, columns))
    shown = items.masked_fill(values == -torch.inf, -1)
    return torch.nn.functional.pad(shown, (0, length - shown.shape[1]), value=-1)


def _values(candidates: Candidates, sensitive: Tensor) -> tuple[Tensor, Tensor]:
    """(b, C) values, -inf where there is no item, and bool: in the group."""
    none = candidates.items < 0
    values = candidates.values.double().masked_fill(none, -torch.inf)
    return values, sensitive[candidates.items.clamp(min=0)] & ~none


def _best(values: Tensor, length: int) -> Tensor:
    """(b, length) best first; -inf where there are no more."""
    best = values.topk(min(length, values.shape[1]), dim=1).values
    return torch.nn.functional.pad(best, (0, length - best.shape[1]), value=-torch.inf)
