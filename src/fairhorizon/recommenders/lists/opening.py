"""The first menus of the users of a scenario, and which of their items the users like."""

from dataclasses import dataclass
from weakref import ref

import torch
from torch import Tensor

from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.ranking import rows_at_once
from fairhorizon.recommenders.lists.features import FeatureSource
from fairhorizon.simulation.feedback import Scenario

USERS_AT_ONCE = 1024
BLOCKED_AT_ONCE = 2**22  # cells: 4 MiB


@dataclass(frozen=True)
class Opening:
    """The first menus of users' episodes; rankers are fixed, so they are scored once."""

    users: Tensor  # (b,)
    menus: CandidateSet

    def of(self, rows: Tensor) -> "Opening":
        return Opening(self.users[rows], self.menus.take(rows))


def open_menus(
    items: FeatureSource, scenario: Scenario, users: Tensor, sensitive: Tensor, at_least: int = 0
) -> Opening:
    """For some users of a scenario, in batches, because the table of blocked items is wide."""
    parts = []
    for some in users.split(rows_at_once(len(sensitive), BLOCKED_AT_ONCE)):
        state = scenario.state(some, sensitive.device)
        parts.append(items.menus(state.users, state.queue, state.blocked, sensitive, at_least))
    return Opening(users, type(parts[0]).join(parts))


class LastMenus:
    """The menus of the last scenario whose lists were made, as long as somebody holds it.

    Studies serve the same users at one level after the other, with the same menus at all of them.
    """

    def __init__(self) -> None:
        self._known: tuple[ref[Scenario], FeatureSource, Tensor, int, CandidateSet] | None = None

    def of(
        self, items: FeatureSource, scenario: Scenario, sensitive: Tensor, length: int
    ) -> CandidateSet:
        """The menus of all users of the scenario."""
        if self._known is not None:
            whose, view, group, count, menus = self._known
            if whose() is scenario and view == items and group is sensitive and count == length:
                return menus
        users = torch.arange(scenario.n_users)
        menus = open_menus(items, scenario, users, sensitive, length).menus
        self._known = (ref(scenario, self._forget), items, sensitive, length, menus)
        return menus

    def _forget(self, whose: object) -> None:
        if self._known is not None and self._known[0] is whose:
            self._known = None

    def __deepcopy__(self, memo: dict[int, object]) -> "LastMenus":
        return LastMenus()


def liked_items(opening: Opening, scenario: Scenario) -> Tensor:
    """(b, C) bool: which items of the menus the users like in the scenario."""
    items, parts = opening.menus.items, []
    for rows in torch.arange(len(items)).split(USERS_AT_ONCE):
        mask = scenario.positive.mask(opening.users[rows]).to(items.device)
        parts.append(mask.gather(1, items[rows].clamp(min=0)) & (items[rows] >= 0))
    return torch.cat(parts)


def some_users(scenario: Scenario, most: int, generator: torch.Generator) -> Tensor:
    """Users who like anything in the scenario, at most `most` of them, drawn at random."""
    users = scenario.positive.indptr.diff().nonzero().squeeze(1)
    if len(users) > most:
        users = users[torch.randperm(len(users), generator=generator)[:most]]
    return users
