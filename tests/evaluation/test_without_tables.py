"""More users x items than fit in a table: lists are made in blocks, and long runs are refused."""

from typing import Any

import pytest
import torch

from fairhorizon import histories
from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.long_term import LongRun
from fairhorizon.limits.counts import Exposure
from fairhorizon.methods import Method, build
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

SPLIT = split(synthetic(40, 60, 12, seed=3).interactions)
FCPO: dict[str, Any] = {
    **{"rounds": 1, "horizon": 4, "history": 3, "list_length": 2},
    **{"warm_start": ["ease", "itemknn"], "actor_hidden": [4, 4], "critic_hidden": [4, 4]},
}


@pytest.mark.parametrize("name", ["fcpo", "ease", "ease+lists", "ease+pmmf"])
def test_interactive_lists_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch):
    model = build(Method.parse(name), FCPO if name == "fcpo" else {}, 0).fit(SPLIT)
    scenario = evaluation_scenario(SPLIT, max(1, model.queue_length), Protocol.STANDARD)
    whole = torch.from_numpy(model.recommend(scenario, length=6, feedback=True))
    monkeypatch.setattr(histories, "DENSE_CELLS", 0)
    assert torch.equal(torch.from_numpy(model.recommend(scenario, length=6, feedback=True)), whole)


@pytest.mark.parametrize("name", ["ease", "ease+control"])
def test_a_long_run_is_refused(name: str, monkeypatch: pytest.MonkeyPatch):
    model = build(Method.parse(name), {}, 0).fit(SPLIT)
    server = model.online([])
    users = evaluation_scenario(SPLIT, server.queue_length, Protocol.STANDARD)
    exposure = Exposure(SPLIT.train.item_counts())
    monkeypatch.setattr(histories, "DENSE_CELLS", 40 * 60)
    LongRun(server, users, exposure).step()
    monkeypatch.setattr(histories, "DENSE_CELLS", 40 * 60 - 1)
    with pytest.raises(ConfigError, match=r"^a long run .* 2,400 cells, and at most 2,399 are"):
        LongRun(server, users, exposure)


@pytest.mark.parametrize("feedback", [False, True])
def test_lists_step_by_step_under_limits_are_refused(
    feedback: bool, monkeypatch: pytest.MonkeyPatch
):
    model = build(Method.parse("ease+control"), {}, 0).fit(SPLIT)
    scenario = evaluation_scenario(SPLIT, max(1, model.queue_length), Protocol.STANDARD)
    monkeypatch.setattr(histories, "DENSE_CELLS", 40 * 60 - 1)
    with pytest.raises(ConfigError, match="step by step under limits keeps tables of users x"):
        model.recommend(scenario, length=6, feedback=feedback)
