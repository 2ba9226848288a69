"""Rounds of CPO on recorded offers: predictions by hand, and a market with a known answer."""

import math
from dataclasses import replace

import pytest
import torch
from offered import steps_of

from fairhorizon.fcpo.config import RetentionConfig
from fairhorizon.fcpo.dual import TOLERANCE
from fairhorizon.fcpo.retention.policy import KL_LIMIT, WorthActor, improve, offer_surrogate


def test_predictions_by_hand() -> None:
    states = torch.zeros(2, 1)
    steps = steps_of(torch.tensor([1.0, 4.0]), states)
    surrogate = offer_surrogate(steps, 0, torch.ones(2, 1), temperature=0.1)
    # worth 1: both offers are at 0.3, probabilities one half each
    assert float(surrogate.evaluate(torch.ones(2, 1)).kl) == 0
    # 1 and 3 are 0.5 and 1.5 of their mean, and 2 and 6 are the same
    for worth in ([[1.0], [3.0]], [[2.0], [6.0]]):
        found = surrogate.evaluate(torch.tensor(worth))
        # 0.25 - 0.2 against 0.15, and 0.75 - 0.2 against 0.45: the group leads by -0.1 and by 0.1
        chance = 1 / (1 + math.exp(-1))
        moved = chance - 0.5
        assert float(found.reward) == pytest.approx(moved * (4 - 1) * (0.5 - 0.3) / 2, rel=1e-5)
        assert float(found.costs[0]) == pytest.approx(0, abs=1e-4)
        kl = chance * math.log(2 * chance) + (1 - chance) * math.log(2 * (1 - chance))
        assert float(found.kl) == pytest.approx(kl, rel=1e-4)


def test_the_price_spends_what_was_spent_in_every_step() -> None:
    steps = steps_of(torch.ones(6), torch.zeros(6, 1))
    shown = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])  # a third, and two thirds
    steps = replace(steps, moments=torch.tensor([0, 0, 0, 1, 1, 1]), shown=shown)
    leads = torch.tensor([0.2, 0.2, 0.2, 0.5, 0.5, 0.5], dtype=torch.double)
    prices = steps.prices(leads, temperature=0.1)
    # all rows of a step are alike: log(1/2) = (lead - price) / 0.1 in the first, log(2) then
    wanted = [0.2 + 0.1 * math.log(2)] * 3 + [0.5 - 0.1 * math.log(2)] * 3
    assert prices.tolist() == pytest.approx(wanted, abs=1e-5)
    varied = leads + torch.linspace(0, 0.1, 6, dtype=torch.double)
    assert torch.autograd.gradcheck(
        lambda x: steps.prices(x, 0.1), varied.requires_grad_(), eps=1e-3, atol=1e-2
    )


def test_later_costs_count_at_the_price_of_now() -> None:
    """A like is worth 3 and the price, at which half are shown the group, is 0.2 of that."""
    steps = steps_of(torch.ones(4), torch.zeros(4, 1))
    later = torch.tensor([[0.5, 0.1]]).expand(4, 2)  # beside the showing itself
    advantages = steps.advantages + torch.stack([torch.zeros(4, 2), later])
    steps = replace(steps, advantages=advantages, usual=torch.full((4,), 3.0))
    priced = steps.priced(torch.ones(4, 1), temperature=0.1)
    likes, costs = priced.advantages[0]
    assert costs[0].tolist() == pytest.approx([1.5, 0.1])
    assert likes[0].tolist() == pytest.approx([0.5 - 0.6 * 1.5, 0.3 - 0.6 * 0.1], abs=1e-5)


def test_showings_cannot_be_saved_for_another_step() -> None:
    """In the second step a like is worth more to everybody: nothing to gain by that."""
    states = torch.tensor([[-1.0], [1.0]]).repeat(500, 1)
    steps = steps_of(torch.where(states[:, 0] > 0, 4.0, 1.0), states)
    steps = replace(steps, moments=(states[:, 0] > 0).long())
    actor = WorthActor(1, (8, 8), seed=0)
    actor.look_at(states)
    updates = improve(actor, steps, 0.5, RetentionConfig(), torch.Generator().manual_seed(0))
    assert sum(update.reward_change for update in updates) == pytest.approx(0, abs=1e-4)


def test_scarce_showings_go_where_a_like_is_worth_more() -> None:
    """Two kinds of states, equally often; in one a like is worth 4 times as much."""
    states = torch.tensor([[-1.0], [1.0]]).repeat(500, 1)
    steps = steps_of(torch.where(states[:, 0] > 0, 4.0, 1.0), states)
    actor = WorthActor(1, (8, 8), seed=0)
    actor.look_at(states)
    assert actor(states[:2]).flatten().tolist() == [1.0, 1.0]
    settings = RetentionConfig(rounds=20)
    updates = improve(actor, steps, 0.5, settings, torch.Generator().manual_seed(0))
    low, high = actor(states[:2]).flatten().tolist()
    assert high > 1.5 * low
    # a showing moved from the one to the other brings 0.2 (4 - 1), and half of them can be moved
    assert 0.05 < sum(update.reward_change for update in updates) < 0.25 * 0.2 * 3
    assert sum(update.cost_changes[0] for update in updates) <= TOLERANCE * 0.5 + 1e-6
    assert all(update.kl <= KL_LIMIT for update in updates)


def test_without_rounds_a_like_is_worth_one_everywhere() -> None:
    states = torch.tensor([[-1.0], [1.0]]).repeat(50, 1)
    steps = steps_of(torch.where(states[:, 0] > 0, 4.0, 1.0), states)
    actor = WorthActor(1, (8, 8), seed=0)
    actor.look_at(states)
    assert improve(actor, steps, 0.5, RetentionConfig(rounds=0), torch.Generator()) == []
    assert actor(states).eq(1).all()


def test_what_the_other_half_does_not_confirm_is_taken_back() -> None:
    states = torch.tensor([[-1.0], [1.0]]).repeat(500, 1)
    steps = steps_of(torch.where(states[:, 0] > 0, 4.0, 1.0), states)
    opposite = steps_of(torch.where(states[:, 0] > 0, 1.0, 4.0), states)
    halves = torch.stack([steps.advantages[0], opposite.advantages[0]])
    actor = WorthActor(1, (8, 8), seed=0)
    actor.look_at(states)
    before = [parameter.detach().clone() for parameter in actor.parameters()]
    divided = replace(steps, advantages=halves)
    assert improve(actor, divided, 0.5, RetentionConfig(), torch.Generator().manual_seed(0)) == []
    for now, then in zip(actor.parameters(), before, strict=True):
        assert torch.equal(now, then)
