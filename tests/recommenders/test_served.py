"""Lists as they go out: values, scores and prices agree with the lists."""

import numpy as np
import pytest
import torch

from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.methods import Method, build
from fairhorizon.recommenders.base import on_lists
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

PARTS = split(synthetic(30, 40, 10, seed=5).interactions)
SMALL = {"rounds": 1, "horizon": 4, "candidates": 10, "history": 8}
METHODS = {
    "fcpo@0.2": SMALL | {"warm_start": ("ease", "itemknn"), "adapt": False},
    "ease": {},
    "ease+quota@0.2": {},
    "ease+lists@0.2": {},
    "ease+control@0.2": {},
    "ease+pmmf@0.2": {},
}


@pytest.mark.parametrize("name", METHODS)
def test_numbers_belong_to_the_lists(name):
    model = build(Method.parse(name), METHODS[name], seed=0).fit(PARTS)
    scenario = evaluation_scenario(PARTS, model.queue_length, Protocol.STANDARD)
    served = model.rank(scenario, length=6)
    assert np.array_equal(served.lists, model.recommend(scenario, length=6))
    for numbers in (served.values, served.scores):
        if numbers is not None:
            assert np.array_equal(np.isnan(numbers), served.lists < 0)
    calibrated = name.startswith("fcpo") or "+lists" in name or "+pmmf" in name
    assert (served.values is not None) is calibrated
    if name == "ease":
        queue, users = scenario.queue, torch.arange(scenario.n_users)
        expected = model.ranker.scores(users, queue).gather(1, torch.from_numpy(served.lists))
        assert np.array_equal(served.scores, expected.double().numpy())
    if name.startswith("fcpo") or "+lists" in name:
        assert (served.scores > 0).all()
        assert (served.scores.sum(1) <= 1 + 1e-6).all()
        assert (np.diff(served.values, axis=1) <= 0).all()  # best first
        assert list(served.prices) == ["popular<=0.2"]
        assert served.prices["popular<=0.2"] > 0
    elif "+control" in name:
        assert served.prices["popular<=0.2"] > 0  # of the last place
    else:
        assert dict(served.prices) == {}


def test_a_price_stands_under_the_text_of_its_limit():
    model = build(Method.parse("ease+lists"), {}, seed=0).fit(PARTS)
    scenario = evaluation_scenario(PARTS, model.queue_length, Protocol.STANDARD)
    own = ResolvedLimit(Limit.parse("seller=Mega<=0.2"), model.sensitive_.numpy())
    other = ResolvedLimit(Limit.parse("seller=Small>=0.3"), np.arange(40) % 4 == 0)
    level = model.with_limits([own]).rank(scenario, length=6)
    plain = model.with_level(0.2).rank(scenario, length=6)
    assert dict(level.prices) == {"seller=Mega<=0.2": plain.prices["popular<=0.2"]}
    assert list(model.with_limits([other]).rank(scenario, length=6).prices) == ["seller=Small>=0.3"]
    assert list(model.with_limits([own]).with_level(0.5).rank(scenario, length=6).prices) == [
        "seller=Mega<=0.5"
    ]


def test_numbers_are_found_by_item():
    items = torch.tensor([[5, -1, 2, 9], [-1, 3, 1, 0]])
    numbers = torch.tensor([[0.5, 7.0, 0.2, 0.9], [7.0, 0.3, 0.1, 0.0]])
    found = on_lists(torch.tensor([[9, 5, -1], [0, 1, 3]]), items, numbers)
    assert torch.equal(found[0].isnan(), torch.tensor([False, False, True]))
    assert found[0, :2].tolist() == pytest.approx([0.9, 0.5])
    assert found[1].tolist() == pytest.approx([0.0, 0.1, 0.3])
