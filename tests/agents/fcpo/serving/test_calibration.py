"""The price of a level for users served alone: by hand, by brute force, on unseen states."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.fcpo.serving.calibration import calibrate
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.price_table import PriceTable, lists_at_price, margins, prices_at
from fairhorizon.allocation.request_guard import ExposureGuard
from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.environment.feedback import Scenario, evaluation_scenario, validation_scenario
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Protocol

INF = torch.inf
GROUP = torch.tensor([True, True, True, False, False, False])
# two users, items 0 to 2 are the group; the second has one other and two of the group
BY_HAND = Candidates(
    torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, -1, 3, -1, -1]]),
    torch.tensor([[0.9, 0.5, 0.1, 0.6, 0.4, 0.2], [0.5, 0.2, 9.0, 0.3, 9.0, 9.0]]).double(),
)


def close(found: Tensor, expected: object) -> bool:
    return torch.allclose(found, torch.tensor(expected, dtype=torch.float64))


def test_margins_by_hand() -> None:
    assert close(margins(BY_HAND, GROUP, 3), [[0.7, 0.1, -0.5], [INF, INF, -INF]])
    # a list of two: 0.9 for the second best other, 0.5 for the best; the second user has only one
    assert close(margins(BY_HAND, GROUP, 2), [[0.5, -0.1], [INF, -0.1]])
    # longer lists than there are items leave everything in
    assert close(margins(BY_HAND, GROUP, 8)[:, :3], [[INF, INF, INF], [INF, INF, -INF]])


def test_prices_by_hand() -> None:
    # of six showings two fill a list at any price, one has a value 0.7 above another item, one 0.1
    levels = torch.tensor([0, 2 / 6, 0.49, 3 / 6, 4 / 6, 1], dtype=torch.float64)
    found = prices_at(levels, margins(BY_HAND, GROUP, 3), 6)
    assert close(found, [0.7, 0.7, 0.7, 0.1, 0.0, 0.0])
    for price, share in ((0.7, 2), (0.1, 3), (0.0, 4)):
        lists = lists_at_price(BY_HAND, GROUP, price=price, length=3)
        assert int(GROUP[lists].sum()) == share
    assert lists.tolist() == [[0, 3, 1], [0, 3, 1]]  # in the order of value, not of value - price
    assert lists_at_price(BY_HAND, GROUP, price=0.7, length=4).tolist() == [
        [0, 3, 4, 5],
        [0, 3, 1, -1],
    ]
    assert lists_at_price(BY_HAND, GROUP, price=0.0, length=8)[1].tolist() == [0, 3, 1] + [-1] * 5


def test_without_a_group_or_without_others_no_price_is_needed() -> None:
    levels = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    for group in (torch.zeros(6, dtype=torch.bool), torch.ones(6, dtype=torch.bool)):
        assert close(prices_at(levels, margins(BY_HAND, group, 3), 6), [0.0, 0.0, 0.0])


@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0, 1))
def test_lists_at_the_price_have_the_share(seed: int, length: int, level: float) -> None:
    draw = np.random.default_rng(seed)
    users, n_items = 7, 12
    items = np.tile(np.arange(n_items), (users, 1))
    items[draw.random(items.shape) < 0.3] = -1
    values = draw.normal(size=items.shape)
    group = torch.tensor(draw.random(n_items) < 0.5)
    offers = Candidates(torch.tensor(items), torch.tensor(values))
    shown = int(np.minimum((items >= 0).sum(1), length).sum())
    found = margins(offers, group, length)
    price = float(prices_at(torch.tensor([level], dtype=torch.float64), found, shown))
    lists = lists_at_price(offers, group, price=price + 1e-12, length=length)

    label = group.numpy()
    for row in range(users):  # the definition, one user after the other
        open_items = [i for i in range(n_items) if items[row, i] >= 0]
        open_items.sort(key=lambda i: -(values[row, i] - (price + 1e-12) * label[i]))
        best = sorted(open_items[:length], key=lambda i: -values[row, i])
        assert lists[row].tolist() == best + [-1] * (length - len(best))
    of_group = int(label[lists[lists >= 0]].sum())
    forced, wanted = int((found == INF).sum()), int((found > 0).sum())
    assert of_group == min(wanted, max(forced, int(level * shown + 1e-9)))


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


@pytest.mark.parametrize("length", [5, 12, 20])
def test_users_served_alone_come_near_to_every_level(
    model: Fcpo, states: Scenario, length: int
) -> None:
    free = rate(model, model.at(1.0).recommend_at_price(states, length=length))
    rates = []
    for level in np.arange(0.1, 1.0, 0.1):
        lists = model.at(float(level)).recommend_at_price(states, length=length)
        rates.append(rate(model, lists))
        assert rates[-1] == pytest.approx(level, abs=0.02)
    assert rates == sorted(rates)
    assert free > 0.95


def test_on_its_own_states_the_dial_is_exact(model: Fcpo, shop: Split) -> None:
    own = validation_scenario(shop, model.queue_length, Protocol.STANDARD)
    for length in (5, 20):
        for level in (0.1, 0.25, 0.4):
            lists = model.at(level).recommend_at_price(own, length=length)
            assert rate(model, lists) == pytest.approx(level, abs=1.5 / lists.size)


def test_the_dial_never_rises_and_ends_at_nothing(model: Fcpo) -> None:
    table = model.policy_.prices
    assert table is not None
    assert (table.prices.diff(dim=1) <= 0).all()
    assert (table.prices[:, -1] == 0).all()
    assert (table.prices[:, 0] > 0).all()


def test_the_dial_is_kept_in_the_file(model: Fcpo, states: Scenario, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = Fcpo.load(tmp_path / "model").at(0.3)
    lists = model.at(0.3).recommend_at_price(states, length=10)
    assert np.array_equal(again.recommend_at_price(states, length=10), lists)
    again.save(tmp_path / "again")
    loaded = Fcpo.load(tmp_path / "again")
    assert loaded.alpha_prime == 0.3
    assert loaded.policy_.prices is not None
    assert model.policy_.prices is not None
    assert torch.equal(loaded.policy_.prices.prices, model.policy_.prices.prices)


def test_requests_one_by_one_begin_with_the_price_of_the_dial(
    model: Fcpo, states: Scenario
) -> None:
    at = model.at(0.3)
    assert at.policy_.prices is not None
    price = at.policy_.prices.price(0.3, 10)
    lists = at.recommend_one_by_one(states, length=10)
    guard = ExposureGuard(0.3, price=price)
    assert np.array_equal(at.served_one_by_one(states, 10, guard).lists, lists)
    assert guard.shown == lists.size
    # which is the price it ends with, or nearly: no way up on which the cap makes the lists
    assert guard.price == pytest.approx(price, rel=0.2)
    shown = np.cumsum(model.sensitive_.numpy()[lists].sum(1))
    assert (shown <= 0.3 * 10 * np.arange(1, len(lists) + 1) + 1e-9).all()
    assert shown[-1] / lists.size == pytest.approx(0.3, abs=0.01)


def test_of_many_users_a_fixed_sample_is_taken(
    model: Fcpo, states: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairhorizon.agents.fcpo.serving.calibration.MOST_USERS", 200)
    lists = model._lists().plain
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
    scenario = evaluation_scenario(few, model.queue_length, Protocol.STANDARD)
    lists = model.recommend_at_price(scenario, length=12)
    known = few.train.user_counts() + few.validation.user_counts()
    assert (lists >= 0).sum(1).tolist() == (12 - known).tolist()


def test_where_lists_cannot_be_filled_a_level_is_of_what_is_shown() -> None:
    few = split(synthetic(80, 40, 16, seed=5).interactions)
    config = FcpoConfig(warm_start=("ease", "popularity"), rounds=0)
    model = Fcpo(config, seed=2).fit(few, sensitive=np.arange(40) < 20)
    own = validation_scenario(few, model.queue_length, Protocol.STANDARD)
    for level in (0.3, 0.4, 0.5):
        lists = model.at(level).recommend_at_price(own, length=20)
        shown = int((lists >= 0).sum())
        assert shown < 0.98 * lists.size
        assert rate(model, lists) == pytest.approx(level, abs=1.5 / shown)


def test_a_policy_that_samples_has_no_dial(market: Split, small: FcpoConfig) -> None:
    model = Fcpo(small.model_copy(update={"rounds": 0})).fit(market)
    scenario = evaluation_scenario(market, small.history, Protocol.STANDARD)
    assert model.policy_.prices is None
    for serve in (model.recommend_at_price, model.recommend_one_by_one):
        with pytest.raises(ConfigError, match=r"serves no single requests \(fit preset fast\)"):
            serve(scenario, length=5)
    with pytest.raises(ConfigError, match=r"trained for alpha' 1 and serves no other \(fit it"):
        model.at(0.4)


@pytest.mark.parametrize("level", [0.0, -0.5, 1.01, float("nan")])
def test_a_level_that_is_no_share_is_refused(model: Fcpo, level: float) -> None:
    with pytest.raises(ConfigError, match=r"is no share of what is shown \(give one above 0"):
        model.at(level)
