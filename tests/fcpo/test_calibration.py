"""First prices of requests by level: by hand, and against lists that are made together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.serving import PriceTable, calibrate, prices_at
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario, validation_scenario
from fairhorizon.vocabulary import Protocol

pytestmark = pytest.mark.slow


def test_prices_by_hand() -> None:
    """Of six showings two fill a list at any price, one gains 0.7 by the group, one 0.1."""
    gains = np.array([0.7, 0.1, -0.5, np.inf, np.inf, -np.inf])
    levels = np.array([0, 2 / 6, 0.49, 3 / 6, 4 / 6, 1])
    assert prices_at(levels, gains, 6).tolist() == [0.7, 0.7, 0.7, 0.1, 0.0, 0.0]


def test_without_a_group_or_without_others_no_price_is_needed() -> None:
    for gains in (np.full(6, -np.inf), np.full(6, np.inf)):
        assert prices_at(np.array([0.0, 0.5, 1.0]), gains, 6).tolist() == [0.0, 0.0, 0.0]


def test_between_lengths_and_levels_prices_are_interpolated() -> None:
    table = PriceTable(
        torch.tensor([1.0, 4.0]).double(),
        torch.tensor([0.0, 0.5, 1.0]).double(),
        torch.tensor([[1.0, 0.5, 0.0], [0.5, 0.1, 0.0]]).double(),
    )
    assert table.price(0.5, 1) == pytest.approx(0.5)
    assert table.price(0.25, 4) == pytest.approx(0.3)
    assert table.price(0.5, 2) == pytest.approx(0.3)  # half way from 1 to 4, by ratio
    assert table.price(0.25, 100) == pytest.approx(0.3)  # beyond the longest: as that
    assert table.price(1.0, 3) == 0.0


@pytest.fixture(scope="module")
def shop() -> Split:
    return split(synthetic(800, 400, 30, seed=1).interactions)


@pytest.fixture(scope="module")
def model(shop: Split) -> Fcpo:
    config = FcpoConfig(warm_start=("ease", "itemknn"), rounds=0)
    return Fcpo(config, seed=2).fit(shop)


@pytest.fixture(scope="module")
def states(shop: Split, model: Fcpo) -> Scenario:
    """Those of the test items, which nothing was calibrated on."""
    return evaluation_scenario(shop, model.queue_length, Protocol.STANDARD)


def rate(model: Fcpo, lists: np.ndarray) -> float:
    return float(model.sensitive_.numpy()[lists[lists >= 0]].mean())


def test_on_its_own_states_the_price_is_that_of_lists_made_together(
    model: Fcpo, shop: Split
) -> None:
    own = validation_scenario(shop, model.queue_length, Protocol.STANDARD)
    assert model.policy_.prices is not None
    for length in (5, 20):
        for level in (0.1, 0.25, 0.4):
            lists = replace(model._lists(), rule=PlaceRule(level), spread=None)
            (price,) = lists.rank(own, length).prices.values()
            assert model.policy_.prices.price(level, length) == pytest.approx(price, rel=1e-6)


def test_the_table_never_rises_and_ends_at_nothing(model: Fcpo) -> None:
    table = model.policy_.prices
    assert table is not None
    assert (table.prices.diff(dim=1) <= 0).all()
    assert (table.prices[:, -1] == 0).all()
    assert (table.prices[:, 0] > 0).all()


def test_the_table_is_kept_in_the_file(model: Fcpo, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = Fcpo.load(tmp_path / "model").with_level(0.3)
    again.save(tmp_path / "again")
    loaded = Fcpo.load(tmp_path / "again")
    assert loaded.alpha_prime == 0.3
    assert loaded.policy_.prices is not None
    assert model.policy_.prices is not None
    assert torch.equal(loaded.policy_.prices.prices, model.policy_.prices.prices)


def test_requests_one_by_one_begin_with_the_price_of_the_table(
    model: Fcpo, states: Scenario
) -> None:
    at = model.with_level(0.3)
    assert at.policy_.prices is not None
    price = at.policy_.prices.price(0.3, 10)
    lists = at.recommend_one_by_one(states, length=10)
    guard = ExposureGuard(0.3, price=price)
    assert np.array_equal(at.rank_one_by_one(states, 10, guard).lists, lists)
    assert guard.shown == lists.size
    # which is the price it ends with, or nearly: no way up on which the cap makes the lists
    assert guard.price == pytest.approx(price, rel=0.2)
    shown = np.cumsum(model.sensitive_.numpy()[lists].sum(1))
    assert (shown <= 0.3 * 10 * np.arange(1, len(lists) + 1) + 1e-9).all()
    assert shown[-1] / lists.size == pytest.approx(0.3, abs=0.01)


def test_of_many_users_a_fixed_sample_is_taken(
    model: Fcpo, states: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairhorizon.fcpo.serving.MOST_USERS", 200)
    lists = model._lists()
    first, again, other = (calibrate(lists, states, seed) for seed in (3, 3, 4))
    assert torch.equal(first.prices, again.prices)
    assert not torch.equal(first.prices, other.prices)
    assert model.policy_.prices is not None
    assert first.price(0.3, 20) == pytest.approx(model.policy_.prices.price(0.3, 20), rel=0.1)


def test_a_catalogue_smaller_than_a_list() -> None:
    few = split(synthetic(40, 12, 6, seed=5).interactions)
    config = FcpoConfig(warm_start=("popularity",), rounds=0)
    model = Fcpo(config).fit(few)
    assert model.policy_.prices is not None
    assert model.policy_.prices.lengths.tolist() == [1, 2, 3, 5, 7, 10]


def test_a_policy_that_samples_has_no_table(market: Split, small: FcpoConfig) -> None:
    model = Fcpo(small.model_copy(update={"rounds": 0})).fit(market)
    scenario = evaluation_scenario(market, small.history, Protocol.STANDARD)
    assert model.policy_.prices is None
    with pytest.raises(ConfigError, match=r"serves no single requests \(fit preset fast\)"):
        model.recommend_one_by_one(scenario, length=5)
    with pytest.raises(ConfigError, match=r"trained for alpha' 1 and serves no other \(fit it"):
        model.with_level(0.4)


@pytest.mark.parametrize("level", [0.0, -0.5, 1.01, float("nan")])
def test_a_level_that_is_no_share_is_refused(model: Fcpo, level: float) -> None:
    with pytest.raises(ConfigError, match=r"is no share of what is shown \(give one above 0"):
        model.with_level(level)
