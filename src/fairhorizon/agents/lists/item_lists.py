"""Lists of all users under the limit of any level, from the chances of the items on their menus.

A chance is the probability that a user takes an item next (chances.py). From it follows the value
of showing the item (item_value.py). Of all lists that keep the limit, those with the highest total
value are shown (joint_lists.py). The price of a level is computed there: one model serves every
level.
"""

import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fairhorizon.agents.lists.chances import Chances
from fairhorizon.agents.lists.evenness import Evenness
from fairhorizon.agents.lists.opening import LastMenus, open_menus
from fairhorizon.agents.served import ValuedItems, on_lists
from fairhorizon.agents.steps import step_by_step
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.item_value import item_values
from fairhorizon.allocation.joint_lists import JointLists, joint_lists
from fairhorizon.allocation.request_guard import ExposureGuard
from fairhorizon.data.splits import LATER
from fairhorizon.environment.dynamics import Outcome, State
from fairhorizon.environment.feedback import Scenario
from fairhorizon.exposure.place_rule import PlaceRule
from fairhorizon.policy.menus import Menus, SignalMenus
from fairhorizon.ranking import discount

NO_LIMIT = PlaceRule(1.0)


@dataclass(frozen=True)
class ItemLists:
    """Chances served under a limit; `histories` (n_users,) counts the items of each user."""

    chances: Chances
    sensitive: Tensor  # (n_items,) bool
    histories: Tensor
    rule: PlaceRule  # by default at most alpha' of all showings
    spread: Evenness | None  # None: as the values have it
    gini_limit: float | None = None  # of whole lists, beside what `spread` aims at
    last_menus: LastMenus = field(default_factory=LastMenus, compare=False)

    def one_shot(self, scenario: Scenario, length: int) -> Tensor:
        """(n_users, length): the whole list of every user at once."""
        return self.valued(scenario, length).made.lists

    @torch.no_grad()
    def valued(self, scenario: Scenario, length: int) -> "ValuedLists":
        """The whole list of every user at once, with values and chances."""
        menus, chances, offers = self.opened(scenario, length)
        return ValuedLists.of(self._made(menus, offers, length), offers, chances)

    def from_menus(self, menus: Menus, users: Tensor, queues: Tensor, length: int) -> Tensor:
        """(b, length) for some users."""
        return self._made(menus, self.candidates(menus, users, queues, length), length).lists

    def _made(self, menus: Menus, offers: Candidates, length: int) -> JointLists:
        """Lists of the offers, which are those of the menus."""
        sensitive = self.sensitive.cpu()
        plain = joint_lists(offers, sensitive, length=length, rule=self.rule)
        aims = [] if self.gini_limit is None else [self.gini_limit]
        # the Gini index of a single list is the same whatever it shows
        several = len(offers.items) > 1
        if self.spread is not None and several and isinstance(menus, SignalMenus):
            # a limit that does not bind changes nothing, nor what the rankers would do within it
            rule = self.rule if plain.price > 0 else NO_LIMIT
            aims.append(self.spread.aim(plain.lists, menus, sensitive, length, rule))
        if not aims:
            return plain
        with warnings.catch_warnings():
            # this Gini index is a target that may be out of reach
            warnings.filterwarnings("ignore", message="no lists with a Gini index")
            return joint_lists(
                offers, sensitive, length=length, rule=self.rule, gini_limit=min(aims)
            )

    @torch.no_grad()
    def interactive(self, scenario: Scenario, length: int) -> Tensor:
        """(n_users, length): item by item; liked items change what comes next.

        At every step the rest of all lists is planned within what is left of the limit, and every
        user is shown the first item of the plan.
        """
        users = torch.arange(scenario.n_users)
        lists, _ = step_by_step(
            scenario,
            users,
            self.sensitive,
            lambda _, __: _PlannedSteps(self, self._offers(scenario, users, length), length),
            length=length,
        )
        return lists.cpu()

    @torch.no_grad()
    def one_by_one(self, scenario: Scenario, length: int, guard: ExposureGuard) -> "ValuedLists":
        """(n_users, length): one user at a time, in order of arrival."""
        _, chances, offers = self.opened(scenario, length)
        lists = guard.serve_all(offers.items, offers.values, self.sensitive.cpu(), length)
        return ValuedLists.of(JointLists(lists, guard.price, 0.0), offers, chances)

    def _offers(self, scenario: Scenario, users: Tensor, length: int) -> Candidates:
        """Candidates of users in their initial states."""
        menus = open_menus(self.chances.items, scenario, users, self.sensitive, length).menus
        return self.candidates(menus, scenario.codes_of(users), scenario.queue[users], length)

    def candidates(self, menus: Menus, users: Tensor, queues: Tensor, length: int) -> Candidates:
        """The items of the menus and the value of showing each."""
        taken = self.histories[users.to(self.histories.device)]
        return self._offered(menus, self._chances(menus, users, queues), taken, length)

    def opened(self, scenario: Scenario, length: int) -> tuple[Menus, Tensor, Candidates]:
        """Menus, chances and candidates of all users in their initial states."""
        rows = torch.arange(scenario.n_users)
        users = scenario.codes_of(rows)
        menus = self.last_menus.of(self.chances.items, scenario, self.sensitive, length)
        chances = self._chances(menus, users, scenario.queue)
        taken = self.histories[users] if scenario.taken is None else scenario.taken
        return menus, chances, self._offered(menus, chances, taken, length, scenario.worth)

    def values_of_all(self, scenario: Scenario, rows: Tensor, length: int) -> ValuedItems:
        """All items, with chances and values, for the users in some rows of the scenario."""
        state = scenario.state(rows, self.sensitive.device)
        menus = self.chances.items.everything(
            state.users, state.queue, state.blocked, self.sensitive
        )
        chances = self._chances(menus, state.users, state.queue)
        users = scenario.codes_of(rows)
        taken = self.histories[users] if scenario.taken is None else scenario.taken[rows]
        worth = None if scenario.worth is None else scenario.worth[rows]
        offers = self._offered(menus, chances, taken, length, worth)
        return ValuedItems(offers.items, offers.values, chances.cpu())

    def _chances(self, menus: Menus, users: Tensor, queues: Tensor) -> Tensor:
        device = self.sensitive.device
        return self.chances.of(menus, users.to(device), queues.to(device))

    def _offered(
        self,
        menus: Menus,
        chances: Tensor,
        taken: Tensor,
        length: int,
        worth: Tensor | None = None,
    ) -> Candidates:
        likes = (taken.to(self.sensitive.device) / (LATER - 1)).clamp(min=1.0)
        values = item_values(chances, likes, length).cpu()
        if worth is not None:
            values = values * worth.to(values)[:, None]
        return Candidates(menus.items.cpu(), values)


@dataclass(frozen=True)
class ValuedLists:
    """Whole lists, with the value and the chance of every item."""

    made: JointLists
    values: Tensor  # (b, length) float64, NaN where there is no item
    chances: Tensor  # (b, length) float64

    @classmethod
    def of(cls, made: JointLists, offers: Candidates, chances: Tensor) -> "ValuedLists":
        """Values and chances of the items of the lists, among those of all candidates."""
        values, shown = (
            on_lists(made.lists, offers.items, some.cpu()) for some in (offers.values, chances)
        )
        return cls(made, values, shown)


class _PlannedSteps:
    """Plans the rest of all lists at every step and shows the first item of the plan."""

    def __init__(self, lists: ItemLists, offers: Candidates, length: int) -> None:
        self.lists, self.length, self.step = lists, length, 0
        self.items, self.values = offers.items, offers.values
        self.gains = discount(torch.arange(1, length + 1))
        self.begun = offers.items[:, :0]  # (b, step) what was shown so far

    def choose(self, state: State) -> Tensor:
        plan = joint_lists(
            Candidates(self.items, self.values),
            self.lists.sensitive.cpu(),
            length=self.length - self.step,
            rule=self.lists.rule,
            position_weights=self.gains[self.step :],
            begun=self.begun,
        )
        return plan.lists[:, :1].to(state.queue)

    def follow(self, lists: Tensor, outcome: Outcome) -> None:
        """New values for the users who liked what they were shown."""
        column, sensitive = lists.cpu(), self.lists.sensitive
        self.step += 1
        self.begun = torch.cat([self.begun, column], dim=1)
        self.items = self.items.masked_fill(self.items == column, -1)
        rows = outcome.hits.any(1).nonzero().squeeze(1)
        if not len(rows):
            return
        state = outcome.state
        for some in rows.split(max(1, 2**26 // len(sensitive))):  # the table of blocked is wide
            users, queues = state.users[some], state.queue[some]
            menus = self.lists.chances.items.menus(
                users, queues, state.blocked_sets.mask(some), sensitive, self.length
            )
            offers = self.lists.candidates(menus, users.cpu(), queues, self.length)
            self.items = self.items.index_copy(0, some.cpu(), offers.items)
            self.values = self.values.index_copy(0, some.cpu(), offers.values)
