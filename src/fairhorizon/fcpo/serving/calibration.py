"""First prices of a limit on the group, by level: for requests, which come one after the other.

Lists that are made together keep a limit exactly, at a price found on them. A guard of requests
(allocation/guard.py) does not know what comes next; it begins at the price at which the lists of
the validation states would have had the share of the limit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.limit_matrix import Floats
from fairhorizon.allocation.one_limit import OneLimit, Sides
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.shares import whole_showings
from fairhorizon.recommenders.lists.item_lists import ItemLists
from fairhorizon.recommenders.lists.opening import open_menus
from fairhorizon.simulation.feedback import Scenario

LEVELS = 101  # 0, 0.01, ..., 1
LENGTHS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40)  # a price is for lists of one length
MOST_USERS = 8192
AT_ONCE = 1024  # users


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
        """As they are stored."""
        parts = {"lengths": self.lengths, "levels": self.levels, "prices": self.prices}
        return {f"price_table.{name}": tensor for name, tensor in parts.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "PriceTable":
        return cls(*(tensors[f"price_table.{name}"] for name in ("lengths", "levels", "prices")))


def calibrate(lists: ItemLists, scenario: Scenario, seed: int) -> PriceTable:
    """The prices of a policy by level, from the users of a scenario or a random sample of them."""
    users = torch.arange(scenario.n_users)
    if len(users) > MOST_USERS:
        drawn = torch.randperm(len(users), generator=torch.Generator().manual_seed(seed))
        users = drawn[:MOST_USERS]
    group = lists.sensitive.cpu().numpy()
    lengths = [length for length in LENGTHS if length <= len(group)]
    found: dict[int, list[Floats]] = {length: [] for length in lengths}
    shown = np.zeros(len(lengths), dtype=np.int64)
    for by_length in _offers(lists, scenario, users, lengths):
        for number, (length, offers) in enumerate(zip(lengths, by_length, strict=True)):
            sides = Sides.from_candidates(offers, group, length)
            weights, none = discount(np.arange(1, length + 1)), np.zeros((0, 0), dtype=np.bool_)
            gains = OneLimit(PlaceRule(1.0), weights, length, none).gains(sides)
            # a place that fills a list is not refused at any price
            found[length].append(np.where(sides.forced, np.inf, gains).ravel())
            shown[number] += sides.sizes.sum()
    levels = np.linspace(0, 1, LEVELS)
    rows = [
        prices_at(levels, np.concatenate(parts), int(total))
        for parts, total in zip(found.values(), shown, strict=True)
    ]
    return PriceTable(
        torch.tensor(lengths, dtype=torch.float64),
        torch.from_numpy(levels),
        torch.from_numpy(np.stack(rows)),
    )


def prices_at(levels: Floats, gains: Floats, shown: int) -> Floats:
    """(n,) prices at which lists with these gains, `shown` items in all, have the shares (n,).

    0 where the lists have less of the group anyway.
    """
    falling = -np.sort(-gains[gains > 0])
    # infinite gains fill a list at any price: no price needs to be above the finite ones
    finite = falling[np.isfinite(falling)]
    falling = np.minimum(falling, finite[0] if len(finite) else 0.0)
    allowed = np.array([whole_showings(level * shown) for level in levels])
    prices: Floats = np.append(falling, 0.0)[np.minimum(allowed, len(falling))]
    return prices


@torch.no_grad()
def _offers(
    lists: ItemLists, scenario: Scenario, users: Tensor, lengths: Sequence[int]
) -> Iterator[list[Candidates]]:
    """Candidates of the users, a batch at a time; their values depend on the length."""
    for some in users.split(AT_ONCE):
        queues, menus, offers = scenario.queue[some], None, []
        for length in lengths:
            # probabilities depend on the menu, so it has to be the menu for lists of this length
            if menus is None or length > lists.chances.items.least_on_menu:
                menus = open_menus(
                    lists.chances.items, scenario, some, lists.sensitive, length
                ).menus
            codes = scenario.codes_of(some)
            offers.append(lists.candidates(menus, codes, queues, length))
        yield offers
