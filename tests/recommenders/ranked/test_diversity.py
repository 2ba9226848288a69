"""Rules of diversity under the control: which item is shown by hand, limits, restarts, refusals."""

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.data.splits import Split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import PopularityLimit
from fairhorizon.metrics.shares import exceeds
from fairhorizon.rankers.ease import Ease
from fairhorizon.recommenders.ranked.controlled import DiversityRules
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank.control import StepControl
from fairhorizon.simulation.churn import ChurnConfig, QuitRule
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.simulation.simulated import SimulatedUsers, SimulationConfig
from fairhorizon.vocabulary import Protocol

# three items of a first kind, one of a second, one of both, one of none
SOME_KINDS = torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1], [0.5, 0.5], [0, 0]])
SCORES = torch.tensor([[5, 4, 3, 2.5, 2.2, 0]])


def shown(rules: StepControl, list_length: int = 1, steps: int = 6) -> list[int]:
    """What one user is shown, who answers nothing."""
    diversity, table = DiversityRules(rules, SOME_KINDS), SCORES.clone()
    diversity.begin(1)
    control, exposure = OnlineControl([]), Exposure(np.ones(6, dtype=np.int64))
    items: list[int] = []
    for _ in range(steps):
        lists = control.choose([table] * list_length, exposure, diversity.handicap)
        diversity.observe(lists)
        items += lists[0].tolist()
        table[0, lists[0][lists[0] >= 0]] = -torch.inf
    return items


@pytest.mark.parametrize(
    ("mmr", "expected"),
    [
        (0.1, [0, 1, 2, 3, 4, 5]),  # 3 - 0.1 * 1.5 is still more than 2.5
        (1, [0, 1, 3, 2, 4, 5]),  # the third: 3 - 1.5 against 2.5
        (2, [0, 3, 1, 2, 4, 5]),  # the second: 4 - 2 against 2.5; the third: 4 - 2 / 2
    ],
)
def test_mmr_takes_off_what_was_shown_lately_and_fades(mmr: float, expected: list[int]) -> None:
    assert shown(StepControl(mmr=mmr, forgetting=0.5)) == expected


def test_the_handicap_of_mmr_by_hand() -> None:
    diversity = DiversityRules(StepControl(mmr=0.4, forgetting=0.5), SOME_KINDS)
    diversity.begin(1)
    for item in (0, 4, -1):  # the last step shows nothing, and time passes
        diversity.observe(torch.tensor([[item]]))
    lately = torch.tensor([0.25 + 0.5 * 0.5, 0.5 * 0.5])
    torch.testing.assert_close(diversity.lately, lately[None])
    first, second = (0.4 * lately).tolist()
    expected = torch.tensor([[first] * 3 + [second, (first + second) / 2, 0]])
    torch.testing.assert_close(diversity.handicap(torch.tensor([[-1]])), expected)
    more = diversity.handicap(torch.tensor([[3]]))  # the list has begun with the second kind
    torch.testing.assert_close(more - expected, torch.tensor([[0, 0, 0, 0.4, 0.2, 0]]))


@pytest.mark.parametrize(("mmr", "expected"), [(1, [0, 1, 3]), (2, [0, 3, 1])])
def test_mmr_looks_at_the_list_that_is_begun(mmr: float, expected: list[int]) -> None:
    assert shown(StepControl(mmr=mmr), list_length=3, steps=1) == expected


@pytest.mark.parametrize("list_length", [1, 2, 3])
@pytest.mark.parametrize(
    ("quota", "window", "expected"),
    [
        (1, 2, [0, 3, 1, 5, 2, 4]),  # an item of no kind is always open; at last nothing else is
        (2, 3, [0, 1, 3, 2, 4, 5]),
        (2, 4, [0, 1, 3, 5, 2, 4]),  # of both kinds: the first is its main one
        (5, 6, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_full_kind_is_closed_unless_nothing_else_is_open(
    quota: int, window: int, expected: list[int], list_length: int
) -> None:
    rules = StepControl(kind_quota=quota, window=window)
    assert shown(rules, list_length, 6 // list_length) == expected


def test_who_is_shown_nothing_keeps_the_window() -> None:
    diversity = DiversityRules(StepControl(kind_quota=1, window=2), SOME_KINDS)
    table = SCORES.repeat(2, 1)
    table[1] = -torch.inf  # this user has left
    control, exposure = OnlineControl([]), Exposure(np.ones(6, dtype=np.int64))
    diversity.begin(2)
    diversity.observe(torch.tensor([[0], [3]]))
    lists = control.choose(table, exposure, diversity.handicap)
    assert lists.tolist() == [[3], [-1]]
    diversity.observe(lists)
    assert diversity.recent.tolist() == [[3], [3]]


@pytest.fixture(scope="module")
def model(market: Split) -> Ranked:
    return Ranked(Ease()).fit(market)


def kinds_of(market: Split) -> Tensor:
    """Four kinds, turn by turn."""
    n_items = market.train.n_items
    return torch.eye(4)[torch.arange(n_items) % 4]


def begun(model: Ranked, market: Split, rules: StepControl, list_length: int = 1) -> LongRun:
    """Users who quit after more than 2 of 5 items of a kind, under a limit of 30 %."""
    kinds, churn = kinds_of(market), ChurnConfig(quits=QuitRule(most=2, of=5))
    users = SimulatedUsers.from_split(
        synthetic(60, 80, 20, seed=3),
        market,
        model.queue_length,
        Protocol.STANDARD,
        SimulationConfig(churn=churn),
        kinds=kinds,
    )
    server = model.reranked(rules).online(
        [PopularityLimit(0.3)], list_length=list_length, kinds=kinds
    )
    settings = LongRunSettings(list_length=list_length, warm_up=0, update_every=3)
    return LongRun(server, users, Exposure(market.train.item_counts()), settings)


@pytest.mark.parametrize("list_length", [1, 2])
def test_a_quota_keeps_everybody_who_would_quit_and_the_limit(
    model: Ranked, market: Split, list_length: int
) -> None:
    here = {}
    for quota in (None, 2):
        rules = StepControl(kind_quota=quota, window=5)
        run = begun(model, market, rules, list_length)
        for _ in range(12):
            row = run.step()
            assert not exceeds(row["popularity_rate"], 0.3)
        here[quota] = row["here"]
    assert here[None] < 0.2
    assert here[2] == 1


def test_a_limit_comes_before_a_quota(model: Ranked, market: Split) -> None:
    """Popular items are the only ones of their kind: the others are full after one showing."""
    exposure = Exposure(market.train.item_counts())
    kinds = torch.eye(2)[exposure.sensitive.long()]
    server = model.reranked(StepControl(kind_quota=1, window=9)).online(
        [PopularityLimit(0.0)], kinds=kinds
    )
    users = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    run = LongRun(server, users, exposure, LongRunSettings(warm_up=0, relabel_every=99))
    for _ in range(5):
        row = run.step()
        assert row["popularity_rate"] == 0
        assert row["showings"] == row["step"]  # nobody is left without a list


@pytest.mark.parametrize(
    "rules", [StepControl(mmr=0.7), StepControl(kind_quota=2, window=5)], ids=["mmr", "quota"]
)
def test_a_stored_run_goes_on_as_if_nothing_had_been(
    model: Ranked, market: Split, rules: StepControl
) -> None:
    first, second = (begun(model, market, rules, list_length=2) for _ in range(2))
    for _ in range(6):
        first.step()
    second.restore(load(save(first.tensors())))
    plain = begun(model, market, StepControl(), list_length=2)
    for _ in range(6):
        plain.step()
    for _ in range(5):
        assert first.step()["ndcg"] == second.step()["ndcg"]
        plain.step()
        assert torch.equal(first.state.blocked, second.state.blocked)
    assert not torch.equal(first.state.blocked, plain.state.blocked)


def test_without_a_rule_settings_are_those_of_before() -> None:
    assert StepControl(share=0.3).stated() == {"share": 0.3}
    assert StepControl(mmr=0.5).stated() == {"share": 0.4, "mmr": 0.5, "forgetting": 0.9}
    quota = StepControl(kind_quota=3).at_level(0.1)
    assert quota.stated() == {"share": 0.1, "kind_quota": 3, "window": 10}


def test_what_a_rule_cannot_do_is_said_with_a_remedy(model: Ranked, market: Split) -> None:
    served = model.reranked(StepControl(mmr=1))
    assert served.capabilities.kinds
    assert not model.reranked(StepControl()).capabilities.kinds
    with pytest.raises(ConfigError, match=r"ease\+control: .* about kinds .* \(give `kinds`, or"):
        served.online([])
    scenario = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    with pytest.raises(ConfigError, match=r"are rules of a long run .*use longterm"):
        served.recommend(scenario, length=3)
    with pytest.raises(ConfigError, match="kind_quota=5 of a window of 5 closes nothing"):
        StepControl(kind_quota=5, window=5)
