"""Runs and lists of more users x items than fit in memory are those of the small way, to the bit.

The size above which no table of users x items is made is lowered to nothing here.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from fairhorizon import histories
from fairhorizon.agents.base import Recommender
from fairhorizon.agents.methods import Method, build
from fairhorizon.allocation import shortlists
from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.environment.feedback import evaluation_scenario
from fairhorizon.environment.simulated import SimulatedUsers
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.exposure.counts import Exposure
from fairhorizon.exposure.step_limits import GiniLimit, GroupFloor, PopularityLimit, StepLimit
from fairhorizon.vocabulary import Labels, Protocol

MARKET = synthetic(40, 60, 12, seed=3)
SPLIT = split(MARKET.interactions)
FCPO = {
    **{"rounds": 1, "horizon": 4, "history": 3, "fisher_states": 16, "list_length": 2},
    **{"warm_start": ["ease", "itemknn"], "actor_hidden": [4, 4], "critic_hidden": [4, 4]},
}
PAPER = {
    **{"rounds": 1, "horizon": 4, "history": 3, "fisher_states": 16, "list_length": 2},
    **{"pmf": {"dim": 4, "max_epochs": 2}, "gru_hidden": 4},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "fcpo": FCPO,
    "fcpo:paper": PAPER,
    "lird": {"rounds": 1, "updates": 5, "list_length": 2, "pmf": {"dim": 4, "max_epochs": 2}},
}
SERVERS = (
    *("fcpo", "fcpo:paper", "popularity", "itemknn", "ease+quota", "ease+control", "ease+pmmf"),
    *("popularity+control", "ease+tfrom", "lird"),
)


@pytest.fixture(scope="module", params=SERVERS)
def model(request: pytest.FixtureRequest) -> Recommender:
    name = request.param
    return build(Method.parse(name), SETTINGS.get(name, {}), 0).fit(SPLIT)


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tables, short shortlists, and blocks of three users."""
    monkeypatch.setattr(histories, "DENSE_CELLS", 0)
    monkeypatch.setattr(shortlists, "KEPT", 4)
    monkeypatch.setattr(shortlists, "SCORES_AT_ONCE", 3 * 60)


class Recorded(LongRun):
    """A run that keeps its lists."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.lists: list[Tensor] = []

    def step(self) -> dict[str, float | int]:
        before = self.exposure.shown.copy()
        row = super().step()
        assert (self.exposure.shown != before).any()
        return {name: value for name, value in row.items() if name != "seconds"}

    def _serve(self, spent: Any) -> Any:
        lists, outcome = super()._serve(spent)
        self.lists.append(lists)
        return lists, outcome


def opened(
    model: Recommender, *, after: int | None, clicks: bool, limits: list[StepLimit] | None = None
) -> Recorded:
    """A run with lists of 2, rounds of 6 items, updates and refits."""
    if limits is None:
        limits = [PopularityLimit(0.4, warm_up=2, labels=Labels.RETROSPECTIVE)]
    own = limits if model.abilities.limits else []
    server = model.server(own, list_length=2, round_length=6, retrain_on=SPLIT, seed=1)
    users: Any = evaluation_scenario(SPLIT, server.queue_length, Protocol.STANDARD)
    if clicks:
        protocol = Protocol.STANDARD
        users = SimulatedUsers.of_split(MARKET, SPLIT, server.queue_length, protocol, seed=2)
    settings = LongRunSettings(list_length=2, repeat_after=after, update_every=3, warm_up=2)
    return Recorded(server, users, Exposure(SPLIT.train.item_counts()), settings)


def assert_same_rows(found: list[Any], right: list[Any]) -> None:
    assert [row.keys() for row in found] == [row.keys() for row in right]
    for one, other in zip(found, right, strict=True):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize(("after", "clicks"), [(None, False), (3, True)], ids=["once", "repeats"])
def test_a_run_without_tables_shows_the_same_lists(
    model: Recommender, after: int | None, clicks: bool, request: pytest.FixtureRequest
):
    whole = opened(model, after=after, clicks=clicks)
    rows = [whole.step() for _ in range(8)]
    request.getfixturevalue("small_memory")
    blocked = opened(model, after=after, clicks=clicks)
    assert isinstance(blocked.state.blocked_sets, histories.SortedSets)
    assert_same_rows([blocked.step() for _ in range(8)], rows)
    assert torch.equal(torch.stack(blocked.lists), torch.stack(whole.lists))


def test_a_stored_run_goes_on_without_tables_and_with_them(
    model: Recommender, monkeypatch: pytest.MonkeyPatch
):
    """From the file of either kind of run, at the next update after it was stored."""
    whole = opened(model, after=None, clicks=False)
    rows = [whole.step() for _ in range(8)]
    for cells_before, cells_after in ((0, 0), (2**28, 0), (0, 2**28)):
        monkeypatch.setattr(histories, "DENSE_CELLS", cells_before)
        begun = opened(model, after=None, clicks=False)
        for _ in range(3):
            begun.step()
        monkeypatch.setattr(histories, "DENSE_CELLS", cells_after)
        resumed = opened(model, after=None, clicks=False)
        resumed.restore(begun.tensors())
        assert_same_rows([resumed.step() for _ in range(5)], rows[3:])
        assert torch.equal(torch.stack(resumed.lists), torch.stack(whole.lists[3:]))


LIMITS: dict[str, list[StepLimit]] = {
    "gini": [GiniLimit(0.5)],
    "several": [
        PopularityLimit(0.4, warm_up=2),
        GroupFloor("fours", torch.arange(60) % 4 == 0, 0.3),
    ],
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
@pytest.mark.usefixtures("small_memory")
def test_other_limits_hold_alike(limits: list[StepLimit], monkeypatch: pytest.MonkeyPatch):
    model = build(Method.parse("ease+control"), {}, 0).fit(SPLIT)
    lists = []
    for cells in (0, 2**28):
        monkeypatch.setattr(histories, "DENSE_CELLS", cells)
        run = opened(model, after=None, clicks=False, limits=limits)
        for _ in range(6):
            run.step()
        lists.append(torch.stack(run.lists))
    assert torch.equal(*lists)


@pytest.mark.parametrize("name", ["fcpo", "ease", "ease+lists", "ease+control", "ease+pmmf"])
def test_interactive_lists_are_the_same(name: str, request: pytest.FixtureRequest):
    model = build(Method.parse(name), SETTINGS.get(name, {}), 0).fit(SPLIT)
    scenario = evaluation_scenario(SPLIT, max(1, model.queue_length), Protocol.STANDARD)
    whole = torch.from_numpy(model.recommend(scenario, length=6, feedback=True))
    request.getfixturevalue("small_memory")
    assert torch.equal(torch.from_numpy(model.recommend(scenario, length=6, feedback=True)), whole)


def test_what_needs_tables_says_so(small_memory: None):  # noqa: ARG001
    explore = build(Method.parse("fcpo"), FCPO | {"explore": 0.5}, 0)
    run = opened(explore.fit(SPLIT), after=None, clicks=False)
    with pytest.raises(ConfigError, match=r"40 users x 60 items, which are too many .set explore"):
        run.step()
