"""The example of the paper's introduction, with its numbers."""

import pytest

from fairhorizon.studies.four_items import fixed_parity, moving_groups


@pytest.mark.slow
def test_between_fixed_groups_one_item_takes_all_of_its_group():
    """D has half of all showings, which is every list; C, of the same group, has none."""
    shares = fixed_parity(steps=100).of
    assert shares["C"] + shares["D"] == pytest.approx(0.5)
    assert shares["D"] > 0.495
    assert shares["C"] < 0.005


@pytest.mark.slow
@pytest.mark.parametrize("alpha_prime", [0.4, 0.3])
def test_with_moving_groups_its_exposure_is_held(alpha_prime: float):
    """D is soon popular: popular items have alpha' of the showings, D nearly all of that.

    The other items share the rest alike: whoever is ahead becomes popular and waits.
    """
    result = moving_groups(alpha_prime, steps=100)
    others = [share for name, share in result.of.items() if name != "D"]
    assert alpha_prime - 0.1 < result.of["D"] < alpha_prime
    assert max(others) - min(others) < 0.01
    assert min(others) > (1 - alpha_prime) / 3
    assert result.gini < fixed_parity(steps=100).gini / 2
