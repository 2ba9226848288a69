"""Whole lists under limits over shards of users: each has the menus of its own users."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fairhorizon.agents.lists.item_lists import NO_LIMIT, ItemLists, ValuedLists
from fairhorizon.agents.lists.limited import served_lists
from fairhorizon.agents.lists.several import SeveralLimits, possible_terms, valued_lists
from fairhorizon.agents.lists.whole import WholeLists
from fairhorizon.agents.served import Served
from fairhorizon.agents.sharding import ShardWay, joined
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.joint_lists import JointLists
from fairhorizon.allocation.several.joint import rules_over
from fairhorizon.allocation.sharded.calls import UserShards
from fairhorizon.allocation.sharded.joint import JointOver, JointPrices
from fairhorizon.allocation.sharded.rules_shard import RulesShard
from fairhorizon.allocation.sharded.user_shard import UserShard
from fairhorizon.environment.feedback import Scenario
from fairhorizon.exposure.kept_by_lists import are_joint
from fairhorizon.policy.menus import SignalMenus


class ListShard(UserShard):
    """The candidates of some users by value, and by the score of every ranker behind it."""

    @torch.no_grad()
    def __init__(self, whole: WholeLists, scenario: Scenario, length: int) -> None:
        lists = whole.under_one
        menus, self.chances, offers = lists.opened(scenario, length)
        signals = menus.signals[..., :-1].cpu() if isinstance(menus, SignalMenus) else None
        alone = (
            [] if signals is None else [Candidates(offers.items, one) for one in signals.unbind(2)]
        )
        super().__init__([offers, *alone], lists.sensitive.cpu())
        self.whole, self.length = whole, length

    def behind(self) -> tuple[int, int]:
        """How many users there are, and how many rankers are behind their values, if known."""
        return len(self.chances), len(self.tables) - 1

    def served(self, prices: JointPrices) -> Served:
        """The lists that were made last."""
        padding = (0, self.length - self.lists.shape[1])
        lists = torch.nn.functional.pad(self.lists, padding, value=-1)
        made = JointLists(lists, prices.price, prices.spread_price)
        valued = ValuedLists.of(made, self.tables[0], self.chances)
        return served_lists(valued, self.whole.limits, self.whole.level)


@dataclass(frozen=True)
class WholeInShards:
    """The lists of `WholeLists`, to the bit."""

    whole: WholeLists

    def shard(self, scenario: Scenario, length: int, users: int) -> ListShard:  # noqa: ARG002
        return ListShard(self.whole, scenario, length)

    def serve(self, shards: UserShards, length: int) -> Served:
        lists = self.whole.under_one
        prices = make_lists(lists, JointOver(shards, lists.sensitive), length)
        return joined(shards.ask("served", prices))


class RulesListShard(RulesShard):
    """All items of some users, with their values."""

    @torch.no_grad()
    def __init__(self, several: SeveralLimits, scenario: Scenario, length: int, users: int) -> None:
        terms = possible_terms(several.limits, length)
        self.candidates, self.chances = several.offers(scenario, length, terms, users)
        super().__init__(self.candidates, terms)

    def served(self, prices: Mapping[str, float]) -> Served:
        """The lists that were made last."""
        return valued_lists(self.lists, self.candidates, self.chances, prices)


@dataclass(frozen=True)
class SeveralInShards:
    """The lists of `SeveralLimits`, to the bit."""

    several: SeveralLimits

    def shard(self, scenario: Scenario, length: int, users: int) -> RulesListShard:
        return RulesListShard(self.several, scenario, length, users)

    def serve(self, shards: UserShards, length: int) -> Served:
        limits = self.several.limits
        made = rules_over(shards, possible_terms(limits, length))
        prices = dict(zip(map(str, limits), made.prices, strict=True))
        return joined(shards.ask("served", prices))


def whole_in_shards(whole: WholeLists) -> ShardWay | None:
    """How shards of users make these lists; None: in one place, step by step."""
    if whole.several is not None:
        return SeveralInShards(whole.several)
    return WholeInShards(whole) if are_joint(whole.limits) else None


def make_lists(lists: ItemLists, joint: JointOver, length: int) -> JointPrices:
    """The shards make the lists that `ItemLists.valued` would; their prices."""
    plain = joint.make(lists.rule, length)
    aims = [] if lists.gini_limit is None else [lists.gini_limit]
    if lists.spread is not None and (aim := _even(lists, joint, length, plain)) is not None:
        aims.append(aim)
    if not aims:
        return plain
    with warnings.catch_warnings():
        # this Gini index is a target that may be out of reach
        warnings.filterwarnings("ignore", message="no lists with a Gini index")
        return joint.make(lists.rule, length, gini_limit=min(aims))


def _even(lists: ItemLists, joint: JointOver, length: int, plain: JointPrices) -> float | None:
    """The Gini index to aim at, from that of the plain lists; None: there is nothing to compare.

    A limit that does not bind changes nothing, nor what the rankers would do within it.
    """
    assert lists.spread is not None
    users, rankers = zip(*joint.shards.ask("behind"), strict=True)
    if sum(users) < 2 or not rankers[0]:
        return None
    rule, own, least = lists.rule if plain.price > 0 else NO_LIMIT, joint.gini(), 1.0
    for number in lists.spread.numbers(rankers[0]):
        joint.make(rule, length, table=1 + number)
        least = min(least, joint.gini())
    return lists.spread.between(own, least)
