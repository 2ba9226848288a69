"""A ranker behind online re-rankers: whole lists, and the long run."""

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.limits.counts import Exposure
from fairhorizon.methods import Method, build_reranker
from fairhorizon.metrics.accuracy import discount
from fairhorizon.rankers.ease import Ease
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

NAMES = ("pmmf", "fairco", "tfrom")
LENGTH = 10


@pytest.fixture(scope="module")
def model(market):
    return Ranked(Ease()).fit(market)


@pytest.fixture(scope="module")
def users(market, model):
    return evaluation_scenario(market, model.queue_length, Protocol.STANDARD)


def behind(model, name, level, given=None):
    method = Method.parse(f"ease+{name}@{level}")
    return model.reranked(build_reranker(method, {name: given or {}}))


def weighted_share(lists, model):
    weights = discount(np.arange(1, LENGTH + 1))
    return float((model.sensitive_.numpy()[lists] * weights).sum() / weights.sum() / len(lists))


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_share_1_is_the_ranker_itself(model, users, name, feedback):
    lists = behind(model, name, 1).recommend(users, length=LENGTH, feedback=feedback)
    own = model.recommend(users, length=LENGTH, feedback=feedback)
    assert np.array_equal(lists, own)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ranker", [Ease(), Popularity()], ids=lambda ranker: ranker.method)
def test_the_level_is_the_share_of_exposure(market, ranker, name):
    model = Ranked(ranker).fit(market)
    users = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    own = weighted_share(model.recommend(users, length=LENGTH), model)
    assert own > 0.45
    lists = behind(model, name, 0.3, {"batch": 6}).recommend(users, length=LENGTH)
    if name == "pmmf":  # it counts all places alike
        assert model.sensitive_.numpy()[lists].mean() == pytest.approx(0.3, abs=0.06)
    else:
        assert weighted_share(lists, model) == pytest.approx(0.3, abs=0.06)


def test_tfrom_never_gives_the_group_more_than_its_fair_exposure(model, users):
    for level in (0.1, 0.25, 0.4):
        lists = behind(model, "tfrom", level).recommend(users, length=LENGTH)
        share = weighted_share(lists, model)
        assert level - 0.02 < share <= level + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_other_targets(model, users, name):
    level = float(model.sensitive_.double().mean())
    given = {name: {"target": "parity"}}
    parity = model.reranked(build_reranker(Method.parse(f"ease+{name}"), given))
    assert parity.alpha_prime == level
    lists = [one.recommend(users, length=5) for one in (parity, behind(model, name, level))]
    assert np.array_equal(*lists)
    given = {name: {"target": "merit"}}
    merit = model.reranked(build_reranker(Method.parse(f"ease+{name}"), given))
    assert (merit.recommend(users, length=5) >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("retrain", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_long_run_keeps_near_the_share_and_resumes(market, model, name, retrain):
    """While the groups move; the ranker alone shows half of the group.

    From what was stored after a step, all later rows are the same.
    """
    given = {"pmmf": {"batch": 6, "rate": 0.05}, "fairco": {"batch": 6, "strength": 0.01}}
    served = behind(model, name, 0.1, given.get(name))

    def begin():
        server = served.online(round_length=10, retrain_on=market if retrain else None)
        users = evaluation_scenario(market, server.queue_length, Protocol.STANDARD)
        settings = LongRunSettings(steps=18, update_every=5, warm_up=0)
        return LongRun(server, users, Exposure(market.train.item_counts()), settings)

    whole, rows, stored = begin(), [], []
    for _ in range(18):
        rows.append(whole.step())
        stored.append(save(whole.tensors()))
    rates = [row["popularity_rate"] for row in rows]
    if name == "tfrom":
        assert max(rates) <= 0.1 + 1e-9
        assert min(rates) > 0.09
    else:
        assert rates[-1] == pytest.approx(0.1, abs=0.015)
    assert sum(row["churn"] for row in rows) > 0
    for taken in (5, 13):
        resumed = begin()
        resumed.step()
        resumed.restore(load(stored[taken - 1]))
        for expected in rows[taken:]:
            row = resumed.step()
            assert {**row, "seconds": 0} == {**expected, "seconds": 0}


def test_lists_of_several_items_in_the_long_run(market, model):
    server = behind(model, "tfrom", 0.3).online(list_length=4)
    users = evaluation_scenario(market, server.queue_length, Protocol.STANDARD)
    state, _ = users.begin(torch.arange(users.n_users))
    exposure = Exposure(market.train.item_counts())
    lists = server.serve(state, exposure)
    weights = discount(np.arange(1, 5))
    group = (exposure.sensitive[lists].numpy() * weights).sum() / weights.sum()
    assert 0.3 * len(lists) - 1 < group <= 0.3 * len(lists) + 1e-9
    with pytest.raises(ConfigError, match="list_length 0"):
        behind(model, "tfrom", 0.3).online(list_length=0)


def test_what_cannot_be(model, users):
    with pytest.raises(ConfigError, match=r"serves all users together \(leave out --one-by-one"):
        behind(model, "pmmf", 0.3).recommend_one_by_one(users, length=5)
