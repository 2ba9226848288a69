"""The fairness dial for users who are served alone: what a showing of the group costs at a level.

Lists that are made together keep a limit exactly, at a price found on them (fair_lists.py). Who is
served without knowledge of the others needs the price beforehand:

    list:  the best items by value - price * [in the group], shown in the order of value
    price: that at which such lists, made for the validation states, have the share alpha'

The c-th best item of the group is in a list of L if it is worth more, by more than the price, than
the (L - c + 1)-th best other, which has to go for it. So the price is a quantile of such margins.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.agents.group_places import Candidates
from fairhorizon.agents.item_lists import ItemLists
from fairhorizon.agents.item_rollout import open_menus
from fairhorizon.environment import Scenario
from fairhorizon.rerank.lists import best_first, top

LEVELS = 101  # 0, 0.01, ..., 1
LENGTHS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40)  # a price is for lists of one length
MOST_USERS = 8192
AT_ONCE = 1024  # users
ROUNDING = 1e-9  # of a share of whole showings: 0.29 * 100 = 28.999999999999996


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


def calibrate(lists: ItemLists, scenario: Scenario, seed: int) -> Dial:
    """The dial of a policy for the users of a scenario, or for so many drawn from them."""
    users = torch.arange(scenario.n_users)
    if len(users) > MOST_USERS:
        drawn = torch.randperm(len(users), generator=torch.Generator().manual_seed(seed))
        users = drawn[:MOST_USERS]
    sensitive = lists.sensitive.cpu()
    lengths = [length for length in LENGTHS if length <= len(sensitive)]
    found: dict[int, list[Tensor]] = {length: [] for length in lengths}
    shown = torch.zeros(len(lengths), dtype=torch.int64)
    for by_length in _offers(lists, scenario, users, lengths):
        for length, offers in zip(lengths, by_length, strict=True):
            found[length].append(margins(offers, sensitive, length))
        sizes = (by_length[0].items >= 0).sum(1, keepdim=True)
        shown += sizes.minimum(torch.tensor(lengths)).sum(0)
    levels = torch.linspace(0, 1, LEVELS, dtype=torch.float64)
    rows = [
        prices_at(levels, torch.cat(parts), int(total))
        for parts, total in zip(found.values(), shown, strict=True)
    ]
    return Dial(torch.tensor(lengths, dtype=torch.float64), levels, torch.stack(rows))


def prices_at(levels: Tensor, margins: Tensor, shown: int) -> Tensor:
    """(n,) at which lists with these margins, so many items in all, have each of the shares (n,).

    0 where the lists have less of the group anyway.
    """
    falling = margins[margins > 0].sort(descending=True).values
    # what has to fill a list is shown at any price: no price needs to be above the other margins
    finite = falling[falling.isfinite()]
    falling = falling.clamp(max=float(finite[0]) if len(finite) else 0.0)
    first_refused = (levels * shown + ROUNDING).long().clamp(max=len(falling))
    return torch.cat([falling, falling.new_zeros(1)])[first_refused]


def serve_alone(lists: ItemLists, scenario: Scenario, price: float, length: int) -> Tensor:
    """(n_users, length): everybody's list at the price, whatever others are shown."""
    users, sensitive = torch.arange(scenario.n_users), lists.sensitive.cpu()
    parts = [
        lists_at_price(offers, sensitive, price=price, length=length)
        for (offers,) in _offers(lists, scenario, users, [length])
    ]
    return torch.cat(parts)


@torch.no_grad()
def _offers(
    lists: ItemLists, scenario: Scenario, users: Tensor, lengths: Sequence[int]
) -> Iterator[list[Candidates]]:
    """What may be shown to the users, some of them at a time; its worth depends on the length."""
    for some in users.split(AT_ONCE):
        queues, menus, offers = scenario.queue[some], None, []
        for length in lengths:
            # chances are shared by what is on a menu, so that they are those of lists of the length
            if menus is None or length > lists.actor.least_on_menu:
                menus = open_menus(lists.actor, scenario, some, lists.sensitive, length).menus
            offers.append(lists.candidates(menus, some, queues, length))
        yield offers


def margins(candidates: Candidates, sensitive: Tensor, length: int) -> Tensor:
    """(b, length) by how much the c-th best of the group beats the other that would go for it.

    Infinite where no other is left to fill the list, -inf where the group has no c-th item.
    """
    worth, in_group = _worth(candidates, sensitive)
    group, others = (
        _best(worth.masked_fill(~side, -torch.inf), length) for side in (in_group, ~in_group)
    )
    sizes = (worth > -torch.inf).sum(1, keepdim=True).clamp(max=length)
    place = sizes - 1 - torch.arange(length)
    replaced = others.gather(1, place.clamp(min=0)).masked_fill(place < 0, torch.inf)
    return torch.where(group > -torch.inf, group - replaced, -torch.inf)


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
