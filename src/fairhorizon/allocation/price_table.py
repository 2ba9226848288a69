"""Prices of a group's showings by level: for users who are served without knowledge of the others.

Lists that are made together keep a limit exactly, at a price found on them (joint_lists.py). A user
who is served alone needs the price beforehand:

    list:  the best items by value - price * [in the group], shown in the order of value
    price: that at which such lists, made for the validation states, have the share of the limit

The c-th best item of the group is in a list of L if it is worth more, by more than the price, than
the (L - c + 1)-th best other, which has to go for it. So the price is a quantile of such margins.
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
class Dial:
    """Prices for some lengths of lists and some levels; in between they are interpolated."""

    lengths: Tensor  # (m,) float64, rising
    levels: Tensor  # (n,) float64, rising
    prices: Tensor  # (m, n) float64 in units of the values, never rising with the level

    def price(self, alpha_prime: float, length: int) -> float:
        """What a showing of the group costs at a level; it never rises with the level."""
        levels, logarithms = self.levels.numpy(), self.lengths.log().numpy()
        at_level = [np.interp(alpha_prime, levels, row) for row in self.prices.numpy()]
        return float(np.interp(np.log(max(length, 1)), logarithms, at_level))

    def tensors(self) -> dict[str, Tensor]:
        parts = {"lengths": self.lengths, "levels": self.levels, "prices": self.prices}
        return {f"dial.{name}": tensor for name, tensor in parts.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "Dial":
        return cls(*(tensors[f"dial.{name}"] for name in ("lengths", "levels", "prices")))


def prices_at(levels: Tensor, margins: Tensor, shown: int) -> Tensor:
    """(n,) at which lists with these margins, so many items in all, have each of the shares (n,).

    0 where the lists have less of the group anyway.
    """
    falling = margins[margins > 0].sort(descending=True).values
    # what has to fill a list is shown at any price: no price needs to be above the other margins
    finite = falling[falling.isfinite()]
    falling = falling.clamp(max=float(finite[0]) if len(finite) else 0.0)
    allowed = [whole_showings(level * shown) for level in levels.tolist()]
    first_refused = torch.tensor(allowed, dtype=torch.int64).clamp(max=len(falling))
    return torch.cat([falling, falling.new_zeros(1)])[first_refused]


def margins(candidates: Candidates, sensitive: Tensor, length: int) -> Tensor:
    """(b, length) by how much the c-th best of the group beats the other that would go for it.

    Infinite where no other is left to fill the list, -inf where the group has no c-th item.
    """
    worth, in_group = _worth(candidates, sensitive)
    group, others = (
        _best(worth.masked_fill(~side, -torch.inf), length) for side in (in_group, ~in_group)
    )
    sizes = (worth > -torch.inf).sum(1).clamp(max=length)
    return torch.from_numpy(exchange_gains(group.numpy(), others.numpy(), sizes.numpy()))


def lists_at_price(
    candidates: Candidates, sensitive: Tensor, *, price: float, length: int
) -> Tensor:
    """(b, length) each user's list by itself, best value first; -1 where nothing is left."""
    worth, in_group = _worth(candidates, sensitive)
    _, columns = top(torch.where(in_group, worth - price, worth), length)
    values = worth.gather(1, columns)
    values, items = best_first(values, candidates.items.gather(1, columns))
    shown = items.masked_fill(values == -torch.inf, -1)
    return torch.nn.functional.pad(shown, (0, length - shown.shape[1]), value=-1)


def _worth(candidates: Candidates, sensitive: Tensor) -> tuple[Tensor, Tensor]:
    """(b, C) values, -inf where there is no item, and bool: in the group."""
    none = candidates.items < 0
    worth = candidates.values.double().masked_fill(none, -torch.inf)
    return worth, sensitive[candidates.items.clamp(min=0)] & ~none


def _best(worth: Tensor, length: int) -> Tensor:
    """(b, length) best first; -inf where there are no more."""
    values = worth.topk(min(length, worth.shape[1]), dim=1).values
    return torch.nn.functional.pad(values, (0, length - values.shape[1]), value=-torch.inf)
