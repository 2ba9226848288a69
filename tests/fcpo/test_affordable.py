"""Lists are made as even as accuracy on what users took later can afford."""

from dataclasses import dataclass, replace

import pytest
import torch

from fairhorizon.allocation import spreading
from fairhorizon.data.splits import Split
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.serving import PARTS, ActorProbabilities, largest_gini_reduction
from fairhorizon.histories import UserItems
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.recommenders.interactive import listed_ndcg
from fairhorizon.recommenders.lists.features import InitialCandidates, initial_candidates
from fairhorizon.recommenders.lists.item_lists import NO_LIMIT, GiniTarget, ItemLists
from fairhorizon.simulation.feedback import Scenario, validation_scenario
from fairhorizon.vocabulary import Protocol

pytestmark = pytest.mark.slow

LENGTH, LIMIT = 6, PlaceRule(0.3)
EVEN = GiniTarget(0.6)


@dataclass(frozen=True)
class Case:
    """Lists of the market, and users who like some items."""

    lists: ItemLists
    initial: InitialCandidates
    scenario: Scenario

    def part(self, cost: float, gini_target: GiniTarget = EVEN) -> float:
        return largest_gini_reduction(
            self.lists,
            gini_target,
            self.initial,
            self.scenario,
            length=LENGTH,
            limit=LIMIT.share,
            cost=cost,
        )

    @torch.no_grad()
    def shown(self, rule: PlaceRule, spread: GiniTarget | None) -> torch.Tensor:
        some = replace(self.lists, rule=rule, spread=spread)
        users = self.initial.users
        return some.from_candidates(
            self.initial.candidate_set, users, self.scenario.queue[users], LENGTH
        )

    def ndcg(self, rule: PlaceRule, spread: GiniTarget | None) -> float:
        return listed_ndcg(self.shown(rule, spread), self.initial.users, self.scenario)

    def liking(self, items: torch.Tensor) -> "Case":
        """The same users, who like these items (b, n), each user as many."""
        n_users, count = items.shape
        ends = torch.arange(self.scenario.n_users + 1).clamp(max=n_users) * count
        liked = UserItems(ends, items.sort(1).values.flatten(), self.scenario.positive.n_items)
        return replace(self, scenario=replace(self.scenario, positive=liked))


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists come less near to their aim, but sooner."""
    monkeypatch.setattr(spreading, "TRIALS", 4)


@pytest.fixture(scope="module")
def case(market: Split, strong_model: Fcpo) -> Case:
    policy = strong_model.policy_
    scenario = validation_scenario(market, strong_model.queue_length, Protocol.STANDARD)
    lists = ItemLists(
        ActorProbabilities(policy.actor), strong_model.sensitive_, policy.histories, NO_LIMIT, None
    )
    users = torch.arange(30)
    return Case(
        lists, initial_candidates(policy.actor.items, scenario, users, lists.sensitive), scenario
    )


def test_where_spreading_hurts_it_goes_no_further_than_it_may(case: Case) -> None:
    """Everybody likes just what plain lists show, so that any other list is worse."""
    hurt = case.liking(case.shown(NO_LIMIT, None))
    assert hurt.ndcg(NO_LIMIT, None) == pytest.approx(1)
    costs = {part: 1 - hurt.ndcg(NO_LIMIT, replace(EVEN, part=part)) for part in PARTS}
    assert costs[0.25] > 0
    assert sorted(costs.values(), reverse=True) == list(costs.values())
    assert hurt.part(0.0) == 0
    assert hurt.part(0.999) == 1
    between = (costs[0.5] + costs[0.75]) / 2
    assert hurt.part(between) <= 0.5
    assert hurt.part(0.0) <= hurt.part(between) <= hurt.part(0.999)


def test_the_cost_under_the_limit_counts_too(case: Case) -> None:
    """Everybody likes what lists under the limit show; without a limit spreading costs less."""
    hurt = case.liking(case.shown(LIMIT, None))
    assert hurt.ndcg(LIMIT, None) == pytest.approx(1)
    assert hurt.ndcg(LIMIT, replace(EVEN, part=0.25)) < 1
    assert hurt.part(0.0) == 0


def test_where_it_helps_all_of_it_is_free(case: Case) -> None:
    """Everybody likes what evenly spread lists show without a limit."""
    helped = case.liking(case.shown(NO_LIMIT, EVEN))
    assert helped.ndcg(NO_LIMIT, EVEN) == pytest.approx(1)
    assert helped.ndcg(NO_LIMIT, None) < 1
    most = helped.part(0.2)
    assert helped.ndcg(LIMIT, EVEN) < 0.8 * helped.ndcg(LIMIT, None) or most == 1


@pytest.mark.parametrize(("cost", "seed"), [(0.0, 1), (0.0, 50), (0.01, 2), (0.1, 3)])
def test_lists_never_cost_more_than_they_may(cost: float, seed: int, case: Case) -> None:
    generator = torch.Generator().manual_seed(seed)
    n_users, n_items = case.initial.candidate_set.items.shape[0], len(case.lists.sensitive)
    liked = torch.rand(n_users, n_items, generator=generator).topk(6).indices
    other = case.liking(liked)
    part = other.part(cost)
    assert part in (0, *PARTS)
    for rule in (NO_LIMIT, LIMIT):
        spread = replace(EVEN, part=part) if part else None
        assert other.ndcg(rule, spread) >= (1 - cost) * other.ndcg(rule, None) - 1e-12
