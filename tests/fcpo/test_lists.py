"""How a policy over items serves: values by hand, limits kept, levels in order, feedback used."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.engine import allocate
from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.data.splits import Split
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.networks import Actor, StateEncoder
from fairhorizon.fcpo.policies import rows_of
from fairhorizon.fcpo.serving import ActorProbabilities
from fairhorizon.histories import UserItems
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.metrics.fairness import gini
from fairhorizon.rankers.candidates import ScoredCandidates
from fairhorizon.recommenders.lists.features import initial_candidates
from fairhorizon.recommenders.lists.item_lists import GiniTarget, ItemLists
from fairhorizon.simulation.dynamics import advance
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol

LENGTH = 8
LEVELS = (0.05, 0.2, 0.35, 0.6, 1.0)


@pytest.fixture(scope="module")
def scenario(market: Split, strong_model: Fcpo) -> Scenario:
    return evaluation_scenario(market, strong_model.queue_length, Protocol.STANDARD)


def lists_of(model: Fcpo, share: float, spread: float | None = None) -> ItemLists:
    probabilities = ActorProbabilities(model.policy_.actor)
    gini_target = None if spread is None else GiniTarget(spread)
    return ItemLists(
        probabilities, model.sensitive_, model.policy_.histories, PlaceRule(share), gini_target
    )


def share_of(lists: Tensor, sensitive: Tensor) -> float:
    shown = lists[lists >= 0]
    return int(sensitive[shown].sum()) / len(shown)


def at_once(lists: ItemLists, scenario: Scenario, length: int = LENGTH) -> Tensor:
    """The lists of all users, made together."""
    return torch.from_numpy(lists.rank(scenario, length).lists)


def gini_of(lists: Tensor) -> float:
    return gini(np.bincount(lists[lists >= 0].numpy(), minlength=80))


@torch.no_grad()
def offers_of(lists: ItemLists, scenario: Scenario) -> Candidates:
    users = torch.arange(scenario.n_users)
    candidate_set = initial_candidates(
        lists.probabilities.items, scenario, users, lists.sensitive
    ).candidate_set
    return lists.candidates(candidate_set, users, scenario.queue, LENGTH)


def total_worth(shown: Tensor, offers: Candidates) -> float:
    """DCG of the values of the lists."""
    total = 0.0
    for row, items in enumerate(shown.tolist()):
        values = dict(zip(offers.codes[row].tolist(), offers.values[row].tolist(), strict=True))
        total += sum(values[item] / math.log2(k + 2) for k, item in enumerate(items) if item >= 0)
    return total


def test_an_item_is_worth_its_chance_to_be_liked_over_the_ideal(
    strong_model: Fcpo, scenario: Scenario
):
    lists = lists_of(strong_model, 1.0)
    offers = offers_of(lists, scenario)
    users = torch.arange(60)
    state, _ = scenario.begin(users)
    actor = strong_model.policy_.actor
    candidate_set = actor.items.candidate_set(users, state.queue, state.blocked, lists.sensitive)
    assert isinstance(candidate_set, ScoredCandidates)
    with torch.no_grad():
        rows = rows_of(actor(users, state.queue[:, -10:]), 1)[:, 0]
    for user in (0, 17, 42):
        place_of = {item: place for place, item in enumerate(candidate_set.items[user].tolist())}
        names = [item for item in place_of if item >= 0]
        features = candidate_set.features[user, [place_of[item] for item in names], :2].double()
        probabilities = (features @ rows[user, :2].double()).softmax(0)
        likes = max(1.0, float(strong_model.policy_.histories[user]) / 4)
        whole = int(min(likes, LENGTH))
        gains = [1 / math.log2(k + 2) for k in range(LENGTH)]
        best = sum(gains[:whole]) + (min(likes, LENGTH) - whole) * gains[min(whole, LENGTH - 1)]
        by_hand = (1 - (1 - probabilities) ** likes) / best
        found = dict(zip(offers.codes[user].tolist(), offers.values[user].tolist(), strict=True))
        assert [found[item] for item in names] == pytest.approx(by_hand.tolist(), rel=1e-4)


@pytest.mark.parametrize("share", LEVELS)
def test_lists_at_once_keep_the_share(strong_model: Fcpo, scenario: Scenario, share: float):
    lists = lists_of(strong_model, share)
    shown = at_once(lists, scenario)
    assert shown.shape == (60, LENGTH)
    assert (shown >= 0).all()
    assert share_of(shown, lists.sensitive) <= share + 1e-9
    blocked = scenario.state(torch.arange(60)).blocked
    for user, items in enumerate(shown.tolist()):
        assert len(set(items)) == LENGTH
        assert not blocked[user, items].any()


def test_a_higher_level_is_worth_more(strong_model: Fcpo, scenario: Scenario):
    offers = offers_of(lists_of(strong_model, 1.0), scenario)
    shown = [at_once(lists_of(strong_model, share), scenario) for share in LEVELS]
    shares = [share_of(lists, strong_model.sensitive_) for lists in shown]
    totals = [total_worth(lists, offers) for lists in shown]
    assert shares == sorted(shares)
    assert totals == sorted(totals)
    assert shares[0] == pytest.approx(0.05)
    assert shares[-1] > 0.6
    # without a limit every user gets the best items
    best = torch.from_numpy(offers.values).topk(LENGTH).values.double()
    assert totals[-1] == pytest.approx(
        float((best @ (1 / torch.arange(2, 10).log2()).double()).sum())
    )
    assert totals[0] < 0.95 * totals[-1]


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_spread_lists_are_no_more_unequal_than_the_rankers(
    strong_model: Fcpo, scenario: Scenario, share: float
):
    users = torch.arange(60)
    candidate_set = initial_candidates(
        strong_model.policy_.actor.items, scenario, users, strong_model.sensitive_
    ).candidate_set
    assert isinstance(candidate_set, ScoredCandidates)
    from_rankers = []
    for signal in range(2):
        alone = Candidates.checked(
            candidate_set.items.numpy(), candidate_set.features[..., signal].numpy()
        )
        rule = GroupRule(PlaceRule(share), strong_model.sensitive_.numpy())
        served = allocate(alone, LimitMatrix.from_rules([rule], LENGTH)).lists
        from_rankers.append(gini_of(torch.from_numpy(served)))
    limit = 0.97 * min(from_rankers)
    plain = at_once(lists_of(strong_model, share), scenario)
    spread = at_once(lists_of(strong_model, share, 0.97), scenario)
    assert gini_of(spread) <= limit
    assert share_of(spread, strong_model.sensitive_) <= share + 1e-9
    offers = offers_of(lists_of(strong_model, share), scenario)
    kept = total_worth(spread, offers) / total_worth(plain, offers)
    assert 0.8 < kept <= 1 + 1e-6
    if gini_of(plain) > limit:
        assert not torch.equal(spread, plain)


def silent(scenario: Scenario) -> Scenario:
    """The same users, who like nothing."""
    positive = scenario.positive
    nothing = UserItems(torch.zeros_like(positive.indptr), positive.items[:0], positive.n_items)
    return Scenario(scenario.queue, nothing, scenario.excluded)


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_without_feedback_item_after_item_is_worth_as_much_as_all_at_once(
    strong_model: Fcpo, scenario: Scenario, share: float
):
    """The rest of the best plan is the best plan for the rest."""
    lists, quiet = lists_of(strong_model, share), silent(scenario)
    offers = offers_of(lists, scenario)
    stepwise, whole = lists.interactive(quiet, LENGTH), at_once(lists, quiet)
    assert total_worth(stepwise, offers) == pytest.approx(total_worth(whole, offers), rel=1e-5)
    if share == 1:
        assert torch.equal(stepwise, whole)


@pytest.mark.parametrize("share", LEVELS)
def test_with_feedback_the_share_holds_over_whole_lists(
    strong_model: Fcpo, scenario: Scenario, share: float
):
    lists = lists_of(strong_model, share)
    shown = lists.interactive(scenario, LENGTH)
    assert (shown >= 0).all()
    assert share_of(shown, lists.sensitive) <= share + 1e-9
    blocked = scenario.state(torch.arange(60)).blocked
    for user, items in enumerate(shown.tolist()):
        assert len(set(items)) == LENGTH
        assert not blocked[user, items].any()


@torch.no_grad()
def test_what_is_liked_counts_for_the_next_item(strong_model: Fcpo, scenario: Scenario):
    """Without a limit every item is the likeliest of the present candidates."""
    actor, sensitive = strong_model.policy_.actor, strong_model.sensitive_
    shown = lists_of(strong_model, 1.0).interactive(scenario, LENGTH)
    state, answers = scenario.begin(torch.arange(60))
    candidate_set = actor.items.candidate_set(state.users, state.queue, state.blocked, sensitive)
    hits = 0
    for step in range(LENGTH):
        rows = rows_of(actor(state.users, actor.items.encoder_input(state.queue)), 1)
        logits = candidate_set.logits(rows).squeeze(1)
        closed = (candidate_set.items < 0) | state.blocked.gather(
            1, candidate_set.items.clamp(min=0)
        )
        best = logits.masked_fill(closed, -torch.inf).argmax(1, keepdim=True)
        assert torch.equal(candidate_set.items.gather(1, best), shown[:, step : step + 1])
        outcome = advance(state, shown[:, step : step + 1], answers, sensitive)
        state = outcome.state
        moved = outcome.hits.any(1).nonzero().squeeze(1)
        hits += len(moved)
        if len(moved):
            fresh = actor.items.candidate_set(
                state.users[moved], state.queue[moved], state.blocked[moved], sensitive
            )
            candidate_set.items[moved], candidate_set.features[moved] = fresh.items, fresh.features
    assert hits > 60
    changed = (shown != at_once(lists_of(strong_model, 1.0), scenario)).any(1)
    assert changed.sum() > 20


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
def test_one_by_one_the_share_holds_after_every_user(
    strong_model: Fcpo, scenario: Scenario, share: float
):
    lists = lists_of(strong_model, share)
    guard = ExposureGuard(share)
    shown = torch.from_numpy(lists.one_by_one(scenario, LENGTH, guard).lists)
    of_group = (lists.sensitive[shown.clamp(min=0)] & (shown >= 0)).sum(1).cumsum(0)
    so_far = (shown >= 0).sum(1).cumsum(0)
    assert (of_group <= share * so_far + 1e-9).all()
    assert (guard.shown, guard.sensitive) == (int(so_far[-1]), int(of_group[-1]))
    assert of_group[-1] > 0.8 * share * so_far[-1]  # the budget is not left unused
    again = torch.from_numpy(lists.one_by_one(scenario, LENGTH, ExposureGuard(share)).lists)
    assert torch.equal(again, shown)


def test_with_feedback_the_share_holds_where_lists_cannot_be_filled():
    """Of two users one has taken all that is not in the group: 20 others allow 2 of it."""
    n, sensitive = 60, torch.arange(60) < 30
    taken = UserItems(torch.tensor([0, 0, 30]), torch.arange(30, 60), n)
    nothing = UserItems(torch.tensor([0, 0, 0]), torch.zeros(0, dtype=torch.long), n)
    torch.manual_seed(0)
    encoder = StateEncoder(torch.randn(2, 4), torch.randn(n, 4), 4, 1)
    actor = Actor(encoder, list_length=1, hidden=(4, 4))
    lists = ItemLists(
        ActorProbabilities(actor), sensitive, torch.tensor([30, 30]), PlaceRule(0.1), None
    )
    scenario = Scenario(torch.full((2, 3), n), nothing, taken)
    for shown in (at_once(lists, scenario, 20), lists.interactive(scenario, 20)):
        assert (shown >= 0).sum(1).tolist() == [20, 2]
        assert sensitive[shown[shown >= 0]].sum() == 2
