"""Simulated users: against brute force, binomial bounds and the statistics of their drift."""

import numpy as np
import pytest
import torch

from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import market_of
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.simulation import simulated as module
from fairhorizon.simulation.dynamics import advance
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.simulation.response import ResponseModel
from fairhorizon.simulation.simulated import (
    SimulatedAudience,
    SimulatedUsers,
    SimulationConfig,
    TasteSpread,
)
from fairhorizon.vocabulary import Protocol

N_USERS, N_ITEMS = 60, 80
SOURCE = f"synthetic:users={N_USERS},items={N_ITEMS},interactions_per_user=20,seed=3"
MARKET = market_of(SOURCE)
SPLIT = split(MARKET.interactions)
EVERYONE = torch.arange(N_USERS)


def simulated(
    protocol: Protocol = Protocol.STANDARD, seed: int = 0, **settings: float
) -> SimulatedUsers:
    return SimulatedUsers.from_split(MARKET, SPLIT, 4, protocol, SimulationConfig(**settings), seed)


def scenario_of(n_users: int, n_items: int) -> Scenario:
    """Users without a history."""
    nothing = UserItems(torch.zeros(n_users + 1, dtype=torch.int64), torch.arange(0), n_items)
    return Scenario(nothing.last(3), nothing, None)


def random_lists(seed: int, length: int = 5) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.argsort(rng.random((N_USERS, N_ITEMS)), axis=1)[:, :length].copy())


def chances(audience: SimulatedAudience) -> np.ndarray:
    """All probabilities of the moment in float64, from the formula."""
    vectors, response = audience.vectors.double().numpy(), audience.response
    items = response.item_vectors.double().numpy()
    level = response.user_bias.double().numpy()[:, None] + response.item_bias.double().numpy()
    return 1 / (1 + np.exp(-(vectors @ items.T + level)))


def test_the_market_of_a_source_is_the_generators():
    assert MARKET.relevance.shape == (N_USERS, N_ITEMS)
    assert market_of("synthetic:users=7").interactions.n_users == 7
    assert market_of("synthetic").interactions.n_users == 500
    assert market_of("ml-100k") is None
    assert market_of("synthetic.csv") is None
    with pytest.raises(ConfigError, match="unknown setting 'people'"):
        market_of("synthetic:people=3")


@pytest.mark.parametrize("protocol", Protocol)
def test_users_begin_where_a_logged_evaluation_begins(protocol):
    users = torch.tensor([7, 3, 7])
    state, audience = simulated(protocol).begin(users)
    expected, _ = evaluation_scenario(SPLIT, 4, protocol).begin(users)
    assert torch.equal(state.users, users)
    assert torch.equal(state.queue, expected.queue)
    assert torch.equal(state.blocked, expected.blocked)
    everything = audience.relevance(torch.arange(N_ITEMS).expand(3, N_ITEMS))
    assert everything.dtype == torch.float64
    np.testing.assert_allclose(everything.numpy(), MARKET.relevance[users.numpy()], atol=1e-6)


def test_a_fitted_model_and_a_market_are_the_same_kind_of_user():
    rng = torch.Generator().manual_seed(4)
    model = ResponseModel(
        *(torch.randn(n, 3, generator=rng) for n in (N_USERS, N_ITEMS)),
        *(torch.randn(n, generator=rng) for n in (N_USERS, N_ITEMS)),
    )
    users = SimulatedUsers.from_split(model, SPLIT, 4, Protocol.STANDARD)
    _, audience = users.begin(torch.tensor([5, 9]))
    found = audience.relevance(torch.arange(N_ITEMS).expand(2, N_ITEMS))
    wanted = model.probabilities(torch.tensor([5, 9])).double()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("at_once", [N_ITEMS, 2**20], ids=["user by user", "at once"])
@pytest.mark.parametrize("drift", [0.0, 0.3])
@pytest.mark.parametrize("protocol", Protocol)
def test_relevance_best_and_total_are_those_of_brute_force(protocol, drift, at_once, monkeypatch):
    monkeypatch.setattr(module, "CELLS", at_once)
    state, audience = simulated(protocol, drift=drift).begin(EVERYONE)
    for step in range(3):
        truth = chances(audience)
        showable = np.where(state.blocked.numpy(), 0.0, truth)
        ranked = np.pad(-np.sort(-showable, axis=1), ((0, 0), (0, 20)))
        lists = random_lists(step)
        lists[::2, 1] = -1
        values = np.where(lists < 0, 0.0, np.take_along_axis(truth, lists.clamp(min=0).numpy(), 1))
        np.testing.assert_allclose(audience.relevance(lists), values, rtol=1e-4)
        for first, last in ((0, 1), (1, 2), (0, 5), (30, 40), (75, 85), (85, 90)):
            np.testing.assert_allclose(
                audience.best(first, last), ranked[:, first:last], rtol=1e-4, atol=1e-7
            )
        np.testing.assert_allclose(audience.total(), showable.sum(1), rtol=1e-5)
        assert audience.best(0, 1).dtype == audience.total().dtype == torch.float64
        audience.pass_time()
    moved = not np.allclose(truth, chances(simulated(protocol).begin(EVERYONE)[1]), atol=0.01)
    assert moved == (drift > 0)


@pytest.mark.parametrize("position_bias", [0.0, 0.5, 1.0])
def test_clicks_are_as_frequent_as_their_chance(position_bias):
    _, audience = simulated(position_bias=position_bias).begin(EVERYONE)
    lists = random_lists(0)
    lists[0, 2] = -1
    n = 1000
    clicks = sum(audience.answer(lists).double() for _ in range(n)).numpy()
    examined = np.array([1, 2, 3, 4, 5.0]) ** -position_bias
    chance = np.take_along_axis(MARKET.relevance, lists.clamp(min=0).numpy(), 1) * examined
    chance[0, 2] = 0
    error = np.abs(clicks / n - chance)
    assert (error <= 4.5 * np.sqrt(chance * (1 - chance) / n) + 1e-6).all()  # 300 binomials
    assert clicks[0, 2] == 0
    # and not by far closer than chance has it: 68 % within one standard deviation
    within = error <= np.sqrt(chance * (1 - chance) / n)
    assert 0.55 < within.mean() < 0.8


def test_clicks_decide_what_enters_the_queue():
    """Items 0 and 2 are always clicked, items 1 and 3 never."""
    sure = ResponseModel(
        torch.zeros(1, 2), torch.zeros(5, 2), torch.zeros(1), torch.tensor([50.0, -50, 50, -50, 0])
    )
    users = SimulatedUsers(sure, scenario_of(1, 5), SimulationConfig(position_bias=0))
    state, audience = users.begin(torch.tensor([0]))
    outcome = advance(state, torch.tensor([[1, 2, 0]]), audience, torch.zeros(5, dtype=torch.bool))
    assert outcome.hits.tolist() == [[False, True, True]]
    assert outcome.state.queue.tolist() == [[5, 2, 0]]
    assert outcome.state.blocked.tolist() == [[True, True, True, False, False]]
    again = advance(outcome.state, torch.tensor([[2]]), audience, torch.zeros(5, dtype=torch.bool))
    assert again.reward.tolist() == [0]  # shown before
    assert audience.best(0, 3).tolist() == [pytest.approx([1, 1, 0.5])]  # of all from the start
    assert audience.total().item() == pytest.approx(2.5)


def test_the_same_seed_gives_the_same_answers():
    def answers(users: SimulatedUsers, seed: int | None = None) -> torch.Tensor:
        _, audience = users.begin(EVERYONE, seed=seed)
        parts = []
        for step in range(4):
            parts.append(audience.answer(random_lists(step)))
            audience.pass_time()
        return torch.cat(parts)

    drifting = simulated(drift=0.2, seed=1)
    assert torch.equal(answers(drifting), answers(drifting))
    assert torch.equal(answers(drifting), answers(simulated(drift=0.2), seed=1))
    assert not torch.equal(answers(drifting), answers(drifting, seed=2))


def test_what_is_shown_changes_neither_drift_nor_luck():
    audiences = [simulated(drift=0.2).begin(EVERYONE)[1] for _ in range(2)]
    audiences[0].answer(random_lists(0))
    audiences[1].answer(torch.full((N_USERS, 5), -1))
    for audience in audiences:
        audience.pass_time()
    assert torch.equal(audiences[0].vectors, audiences[1].vectors)
    same = [audience.answer(random_lists(2)) for audience in audiences]
    assert torch.equal(*same)


# Two camps of users, far from a normal distribution, off the origin, in two of three dimensions.
CAMPS = torch.cat([torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[-1.0, 2.0, 2.0]])]).repeat(
    4000, 1
) + 0.3 * torch.randn(8000, 3, generator=torch.Generator().manual_seed(8)) * torch.tensor([1, 1, 0])


def drifting_camps(rate: float) -> SimulatedUsers:
    response = ResponseModel(CAMPS, torch.zeros(4, 3), torch.zeros(8000), torch.zeros(4))
    return SimulatedUsers(response, scenario_of(8000, 4), SimulationConfig(drift=rate))


def test_drift_keeps_mean_and_covariance():
    _, audience = drifting_camps(0.3).begin(torch.arange(8000))
    mean, covariance = CAMPS.numpy().mean(0), np.cov(CAMPS.numpy().T)
    deviations = np.sqrt(np.diag(covariance))
    for _ in range(25):
        audience.pass_time()
        now = audience.vectors.numpy()
        # five standard errors of a mean, and of a covariance (at most sqrt(2 / n) s_i s_j)
        assert (np.abs(now.mean(0) - mean) <= 5 * deviations / np.sqrt(8000) + 1e-5).all()
        bound = 5 * np.sqrt(2 / 8000) * np.outer(deviations, deviations) + 1e-5
        assert (np.abs(np.cov(now.T) - covariance) <= bound).all()
    assert np.ptp(now[:, 2]) < 1e-3  # nobody differs in the third dimension


def test_who_a_user_was_is_forgotten_at_the_stated_rate():
    rate = 0.3
    _, audience = drifting_camps(rate).begin(torch.arange(8000))
    for step in range(1, 26):
        audience.pass_time()
        for axis in (0, 1):
            found = np.corrcoef(CAMPS[:, axis], audience.vectors[:, axis])[0, 1]
            assert found == pytest.approx((1 - rate**2) ** (step / 2), abs=5 / np.sqrt(8000))


def test_a_single_user_drifts_through_the_tastes_of_all():
    _, audience = drifting_camps(0.7).begin(torch.tensor([5]))
    path = []
    for _ in range(4000):
        audience.pass_time()
        path.append(audience.vectors[0])
    walked = torch.stack(path).numpy()
    # steps are correlated by 0.71: 4000 of them carry the information of about 670
    deviations = CAMPS.std(0).numpy()
    assert (np.abs(walked.mean(0) - CAMPS.mean(0).numpy()) <= 5 * deviations / 25 + 1e-5).all()
    np.testing.assert_allclose(walked.std(0)[:2], deviations[:2], rtol=0.15)
    camps = np.corrcoef(CAMPS.numpy()[:, :2].T)[0, 1]
    assert np.corrcoef(walked[:, :2].T)[0, 1] == pytest.approx(camps, abs=0.1)


def test_the_root_of_the_covariance():
    spread = TasteSpread.from_vectors(CAMPS)
    np.testing.assert_allclose(
        spread.root @ spread.root, np.cov(CAMPS.numpy().T, bias=True), atol=1e-4
    )


def test_without_drift_nothing_moves_and_nothing_is_drawn():
    _, audience = simulated(drift=0.0).begin(EVERYONE)
    before = {name: tensor.clone() for name, tensor in audience.tensors().items()}
    for _ in range(3):
        audience.pass_time()
        audience.best(0, 3)
        audience.total()
        audience.relevance(random_lists(0))
    for name, tensor in audience.tensors().items():
        assert torch.equal(tensor, before[name])
    assert torch.equal(audience.vectors, torch.from_numpy(MARKET.tastes).float())


@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_a_restored_audience_goes_on_bit_for_bit(drift):
    _, audience = simulated(drift=drift).begin(EVERYONE)
    for step in range(3):
        audience.answer(random_lists(step))
        audience.pass_time()
    kept = {name: tensor.clone() for name, tensor in audience.tensors().items()}
    _, twin = simulated(drift=drift, seed=9).begin(EVERYONE)
    twin.best(0, 2)
    twin.total()  # what was worked out before must not survive
    twin.restore(kept)
    for step in range(3, 6):
        assert torch.equal(audience.answer(random_lists(step)), twin.answer(random_lists(step)))
        assert torch.equal(audience.best(step, step + 1), twin.best(step, step + 1))
        assert torch.equal(audience.total(), twin.total())
        audience.pass_time()
        twin.pass_time()
        assert torch.equal(audience.vectors, twin.vectors)


def test_answers_and_split_must_be_of_the_same_data():
    other = market_of("synthetic:users=10,items=20,interactions_per_user=5")
    with pytest.raises(ConfigError, match="10 users and 20 items, the split has 60 and 80"):
        SimulatedUsers.from_split(other, SPLIT, 4, Protocol.STANDARD)
