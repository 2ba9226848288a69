"""Users who lose patience, are sated, quit and come back: numbers worked by hand."""

import math
from dataclasses import fields

import numpy as np
import pytest
import torch

from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import ConfigError
from fairhorizon.simulation.churn import (
    ChurnConfig,
    ChurnModel,
    Patience,
    QuitRule,
    calibrated_like_adds,
    share_staying,
    start_of,
)
from fairhorizon.simulation.dynamics import Outcome, State, advance
from fairhorizon.simulation.gym import RecommendationVectorEnv
from fairhorizon.simulation.simulated import SimulatedUsers, SimulationConfig
from fairhorizon.vocabulary import Protocol

MARKET = synthetic(60, 40, 12, seed=3)
PARTS = split(MARKET.interactions)


def churn_of(
    config: ChurnConfig, most: list[float], kinds: torch.Tensor | None = None
) -> ChurnModel:
    values = torch.tensor(most, dtype=torch.float64)
    return ChurnModel(
        config, Patience(values, start_of(values)), kinds, torch.Generator().manual_seed(0)
    )


def leaving(**changes: object) -> SimulatedUsers:
    config = ChurnConfig.model_validate({"patience": 4, "like_adds": 3, **changes})
    kinds = torch.eye(4)[torch.arange(40) % 4]
    own = SimulationConfig(churn=config)
    return SimulatedUsers.from_split(MARKET, PARTS, 5, Protocol.STANDARD, own, 1, kinds)


def test_patience_by_hand() -> None:
    """M = 4 begins with 3, M = 5.9 with 3; each other showing takes a half, a like adds 1."""
    churn = churn_of(ChurnConfig(patience=4, like_adds=2), [4.0, 5.9, 2.0])
    assert churn.patience.left.tolist() == [3, 3, 2]
    lists = torch.tensor([[0, 1], [2, 3], [4, -1]])
    churn.notice(lists, torch.tensor([[True, True], [True, False], [False, False]]))
    assert churn.patience.left.tolist() == [4, 3.5, 1.5]  # the first has no more than 4
    for _ in range(3):
        assert churn.here.all()
        churn.notice(lists, torch.zeros(3, 2, dtype=torch.bool))
    assert churn.patience.left.tolist() == [1, 0.5, 0]
    assert churn.here.tolist() == [True, True, False]
    churn.notice(lists, torch.ones(3, 2, dtype=torch.bool))  # who left is shown nothing
    assert churn.patience.left.tolist() == [3, 2.5, 0]
    assert churn.contentment.tolist() == [1, 3 * 2 / 7, 0]  # 4, 3, 0 likes; 6, 7, 4 others


def test_the_more_a_like_adds_the_more_stay_and_half_is_found() -> None:
    generator = torch.Generator().manual_seed(2)
    liked = torch.rand(60, 500, generator=generator) < 0.15
    shown, most = torch.ones(60, 500), Patience.drawn(4, 500, generator).most
    shares = [share_staying(liked, shown, most, adds) for adds in (1, 3, 6, 9, 20)]
    assert shares == sorted(shares)
    found = calibrated_like_adds(liked, shown, most)
    assert share_staying(liked, shown, most, found) >= 0.5
    assert share_staying(liked, shown, most, 0.995 * found) < 0.5


def test_share_staying_by_hand() -> None:
    """M = 2 begins with 2: gone after two showings in a row that nobody liked."""
    liked = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    shown, most = torch.ones(3, 3), torch.full((3,), 2.0)
    assert share_staying(liked, shown, most, 1.0) == pytest.approx(1 / 3)
    assert share_staying(liked, shown, most, 1.01) == 1.0
    shown[0, 2] = 0  # nothing was shown, nothing is lost
    assert share_staying(liked, shown, most, 1.0) == pytest.approx(2 / 3)


def test_satiation_takes_off_the_log_odds_and_wears_off() -> None:
    users = leaving(satiation=0.7, recovery=0.5)
    state, audience = users.begin(torch.arange(3))
    same, other = torch.tensor([[4], [8], [12]]), torch.tensor([[5], [9], [13]])
    odds = {name: _logit(audience.relevance(some)) for name, some in (("a", same), ("b", other))}
    shown = torch.tensor([[0], [0], [-1]])
    advance(state, shown, audience, torch.zeros(40, dtype=torch.bool))
    now = _logit(audience.relevance(same))
    assert torch.allclose(odds["a"] - now, torch.tensor([[0.7], [0.7], [0.0]]).double(), atol=1e-6)
    audience.pass_time()
    later = _logit(audience.relevance(same))
    expected = torch.tensor([[0.35], [0.35], [0.0]]).double()
    assert torch.allclose(odds["a"] - later, expected, atol=1e-6)
    assert torch.allclose(odds["b"], _logit(audience.relevance(other)))


def _logit(chances: torch.Tensor) -> torch.Tensor:
    return torch.log(chances / (1 - chances))


def test_a_user_quits_after_too_many_of_a_kind() -> None:
    rule = ChurnConfig(quits=QuitRule(most=2, of=4))
    churn = churn_of(rule, [4.0, 4.0], torch.eye(2)[torch.tensor([0, 0, 0, 1, 1])])
    nothing = torch.zeros(2, 1, dtype=torch.bool)
    for first, second in ((0, 0), (3, 1), (1, 3), (4, 4)):
        churn.notice(torch.tensor([[first], [second]]), nothing)
    assert churn.here.tolist() == [True, True]
    churn.notice(torch.tensor([[2], [-1]]), nothing)  # of 3, 1, 4, 2 two are of either kind
    assert churn.here.tolist() == [True, True]
    churn.notice(torch.tensor([[0], [3]]), nothing)  # 1, 4, 2, 0 against 1, 3, 4, 3
    assert churn.here.tolist() == [False, False]


def test_an_item_of_no_kind_bores_nobody() -> None:
    kinds = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    churn = churn_of(ChurnConfig(quits=QuitRule(most=1, of=3)), [4.0, 4.0], kinds)
    for _ in range(3):
        churn.notice(torch.tensor([[0], [1]]), torch.zeros(2, 1, dtype=torch.bool))
    assert churn.here.tolist() == [True, False]


def test_the_content_come_back_as_new_ones_and_the_others_do_not() -> None:
    churn = churn_of(ChurnConfig(patience=2, like_adds=1, returning=1.0), [2.0, 2.0])
    lists = torch.tensor([[0], [1]])
    for liked in ([True, False], [False, False], [False, False]):
        churn.notice(lists, torch.tensor(liked)[:, None])
    assert churn.here.tolist() == [False, False]
    assert churn.contentment.tolist() == [0.5, 0.0]
    churn = churn_of(ChurnConfig(patience=2, like_adds=2, returning=1.0), [2.0, 2.0])
    for liked in ([True, False], *([[False, False]] * 4)):
        churn.notice(lists, torch.tensor(liked)[:, None])
    assert churn.here.tolist() == [False, False]
    back = []
    for _ in range(60):
        churn.pass_time()
        back.append(churn.here.tolist())
    assert back[-1] == [True, False]
    assert churn.patience.left[0] == 2  # the start of M = 2
    assert churn.liked[0] == 0


def test_the_same_seed_gives_the_same_users_and_a_stored_run_goes_on() -> None:
    users, rows = leaving(returning=0.5, satiation=0.2), torch.arange(60)
    state, audience = users.begin(rows)
    again, other = users.begin(rows)
    group = torch.zeros(40, dtype=torch.bool)
    for step in range(12):
        lists = torch.full((60, 1), step)
        state = advance(state, lists, audience, group).state
        audience.pass_time()
        if step == 5:
            stored = {name: value.clone() for name, value in audience.tensors().items()}
    other.restore(stored)
    for step in range(6, 12):
        again = advance(again, torch.full((60, 1), step), other, group).state
        other.pass_time()
    assert 0 < int(audience.here.sum()) < 60
    for name, value in audience.tensors().items():
        assert torch.equal(value, other.tensors()[name]), name


def test_what_a_recommender_is_given_has_no_mood_in_it() -> None:
    """Lists, answers and who is there; neither patience nor the chance of a like."""
    assert {field.name for field in fields(State)} == {
        *("users", "queue", "blocked_sets", "returning", "here"),
    }
    assert {field.name for field in fields(Outcome)} == {"state", "hits", "reward", "cost"}
    state, audience = leaving().begin(torch.arange(60))
    assert state.here is not None
    outcome = advance(state, torch.zeros(60, 1).long(), audience, torch.zeros(40).bool())
    tensors = [value for value in vars(outcome.state).values() if isinstance(value, torch.Tensor)]
    assert not any(torch.is_floating_point(value) for value in tensors)
    assert set(outcome.reward.tolist()) <= {0.0, 1.0}


def test_nothing_is_open_for_those_who_left() -> None:
    state, _ = leaving().begin(torch.arange(3))
    gone = State(state.users, state.queue, state.blocked_sets, (), torch.tensor([1, 0, 1]).bool())
    assert gone.blocked[1].all()
    assert torch.equal(gone.blocked[[0, 2]], state.blocked_sets.mask()[[0, 2]])


@pytest.mark.parametrize("fault", [{"quits": {"most": 4, "of": 4}}, {"patience": 1}])
def test_settings_that_cannot_be_are_refused(fault: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"never are of one kind|greater than or equal to 2"):
        ChurnConfig.model_validate(fault)
    with pytest.raises(ConfigError, match="kinds of items"):
        SimulatedUsers.from_split(
            *(MARKET, PARTS, 5, Protocol.STANDARD),
            SimulationConfig(churn=ChurnConfig(satiation=1)),
        )


def test_an_environment_terminates_who_leaves() -> None:
    users = leaving(like_adds=1)
    env = RecommendationVectorEnv(users, np.zeros(40, bool), list_length=1, horizon=8)
    env.reset(seed=1)
    ended = np.zeros(60, bool)
    for step in range(8):
        _, rewards, terminated, truncated, _ = env.step(np.full((60, 1), step))
        assert not rewards[ended].any()
        assert (terminated >= ended).all()
        assert not (terminated & truncated).any()
        ended = terminated
    assert 0.2 < ended.mean() < 1
    assert math.isclose(truncated.mean() + ended.mean(), 1.0)
