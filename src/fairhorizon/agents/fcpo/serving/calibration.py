"""Prices by level for users who are served alone, found on the validation states."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fairhorizon.agents.lists.item_lists import ItemLists
from fairhorizon.agents.lists.opening import open_menus
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.price_table import PriceTable, lists_at_price, margins, prices_at
from fairhorizon.environment.feedback import Scenario

LEVELS = 101  # 0, 0.01, ..., 1
LENGTHS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40)  # a price is for lists of one length
MOST_USERS = 8192
AT_ONCE = 1024  # users


def calibrate(lists: ItemLists, scenario: Scenario, seed: int) -> PriceTable:
    """The prices of a policy by level, from the users of a scenario or a random sample of them."""
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
    return PriceTable(torch.tensor(lengths, dtype=torch.float64), levels, torch.stack(rows))


def serve_alone(lists: ItemLists, scenario: Scenario, price: float, length: int) -> Tensor:
    """(n_users, length): the list of every user at the price, independent of other users."""
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
