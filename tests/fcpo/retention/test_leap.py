"""A leap to what the critics say: where it lands, and when it is taken back."""

from dataclasses import replace

import pytest
import torch
from offered import CHEAP, DEAR, steps_of

from fairhorizon.fcpo.config import RetentionConfig
from fairhorizon.fcpo.retention.policy import OfferedSteps, WorthActor, improve, leap

STATES = torch.tensor([[-1.0], [1.0]]).repeat(500, 1)
WORTH = torch.where(STATES[:, 0] > 0, DEAR, CHEAP)


def actor_for(states: torch.Tensor) -> WorthActor:
    actor = WorthActor(1, (8, 8), seed=0)
    actor.look_at(states)
    return actor


def ratio_after(steps: OfferedSteps) -> float:
    """Of the worth in the one state to that in the other, after a leap."""
    actor = actor_for(STATES)
    leap(actor, steps, temperature=0.03)
    low, high = actor.worths(STATES[:2]).flatten().tolist()
    return high / low


def test_it_lands_where_the_critics_are() -> None:
    assert ratio_after(steps_of(WORTH, STATES)) == pytest.approx(DEAR / CHEAP, rel=1e-3)


def test_what_a_like_costs_later_counts_at_the_price() -> None:
    """With a price of 0.5, a like that costs 2 showings more later is worth 1 like less."""
    steps = steps_of(WORTH, STATES)
    more = torch.stack([WORTH - 1, torch.where(STATES[:, 0] > 0, 2.0, 0.0)]).expand(2, 2, -1)
    steps = replace(steps, after_like=more, price=0.5)
    assert steps.worth(0)[:2].tolist() == pytest.approx([CHEAP, DEAR - 1.0])
    assert ratio_after(steps) == pytest.approx((DEAR - 1) / CHEAP, rel=1e-3)


def test_it_is_taken_back_where_the_other_half_says_the_opposite() -> None:
    steps = steps_of(WORTH, STATES)
    opposite = steps_of(WORTH.flip(0), STATES)
    divided = {
        name: torch.stack([getattr(steps, name)[0], getattr(opposite, name)[1]])
        for name in ("advantages", "after_like")
    }
    assert ratio_after(replace(steps, **divided)) == 1.0


def test_it_is_asked_for() -> None:
    steps = steps_of(WORTH, STATES)
    for settings, expected in (
        (RetentionConfig(rounds=0), 1.0),
        (RetentionConfig(rounds=0, leap=True), DEAR / CHEAP),
    ):
        actor = actor_for(STATES)
        assert improve(actor, steps, 0.5, settings, torch.Generator().manual_seed(0)) == []
        low, high = actor.worths(STATES[:2]).flatten().tolist()
        assert high / low == pytest.approx(expected, rel=1e-3)
