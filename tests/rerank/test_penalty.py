"""The penalty: a number of standard deviations off the scores of the group."""

import pytest
import torch
from pydantic import ValidationError

from fairhorizon.ranking import best_lists
from fairhorizon.rerank.penalty import Penalty

GENERATOR = torch.Generator()  # a penalty draws nothing from it


def test_the_price_by_hand():
    """1, 3 and 5 spread by sqrt(8/3); what may not be shown does not count."""
    scores = torch.tensor([[1.0, 3.0, 5.0, -torch.inf], [2.0, 2.0, 2.0, 2.0]])
    group = torch.tensor([True, False, False, True])
    price = Penalty(weight=0.5).handicap(scores, group, GENERATOR)
    half = 0.5 * (8 / 3) ** 0.5
    assert price.tolist() == [pytest.approx([half, 0, 0, half]), [0, 0, 0, 0]]
    nothing = Penalty().handicap(torch.full((1, 4), -torch.inf), group, GENERATOR)
    assert nothing.tolist() == [[0, 0, 0, 0]]


def lists_at(weight):
    generator = torch.Generator().manual_seed(4)
    group = torch.arange(50) < 10
    scores = torch.randn(200, 50, generator=generator) + 2 * group
    price = Penalty(weight=weight).handicap(scores, group, generator)
    plain = best_lists(scores, group, 10, 10)
    return best_lists(scores - price, group, 10, 10), plain, group


def test_weight_0_changes_nothing():
    priced, plain, _ = lists_at(0.0)
    assert torch.equal(priced, plain)


def test_the_group_is_shown_less_as_the_weight_grows():
    """From most of the lists to none of them."""
    shares = []
    for weight in (0, 0.5, 1, 2, 3, 8):
        lists, _, group = lists_at(weight)
        shares.append(group[lists].float().mean().item())
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5
    assert shares[-1] == 0


def test_a_price_in_spreads_does_not_depend_on_the_scale_of_scores():
    generator = torch.Generator().manual_seed(4)
    scores, group = torch.randn(5, 20, generator=generator), torch.arange(20) < 7
    price = Penalty().handicap(scores, group, generator)
    scaled = Penalty().handicap(scores * 1024 + 4, group, generator)
    assert torch.allclose(scaled, 1024 * price, rtol=1e-4)


def test_the_level_is_the_weight():
    assert Penalty().at_level(2.5) == Penalty(weight=2.5)
    assert Penalty().share_limit(torch.tensor([True, False])) == 1  # it has no limit on the share
    with pytest.raises(ValidationError):
        Penalty().at_level(-1)
