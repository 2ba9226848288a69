"""Why an item is shown: the history, the rankers, the limits."""

import polars as pl
import pytest
import torch

import fairhorizon as fh
from fairhorizon.data.splits import uncut
from fairhorizon.rankers import RANKERS
from fairhorizon.simulation.feedback import serving_scenario


@pytest.mark.parametrize("name", ["ease", "itemknn", "ridge"])
def test_contributions_add_up_to_the_scores(shop, name):
    log = shop.log()
    ranker = RANKERS[name]().fit(uncut(log))
    queue = serving_scenario(log, ranker.queue_length).queue
    items = torch.tensor([0, 7, 30])
    for user in (0, 5):
        added = ranker.contributions(queue[user], items)
        expected = ranker.scores(torch.tensor([user]), queue[user : user + 1])[0, items]
        assert added.shape == (queue.shape[1], 3)
        assert torch.allclose(added.sum(0), expected, atol=1e-5)


@pytest.mark.parametrize("name", sorted(RANKERS))
def test_few_scores_are_the_scores_whatever_the_padding(shop, name):
    log = shop.log()
    small = {"max_epochs": 1} if "max_epochs" in RANKERS[name].config_class.model_fields else {}
    ranker = RANKERS[name](RANKERS[name].config_class(**small)).fit(uncut(log))
    queue = serving_scenario(log, max(1, ranker.queue_length)).queue[3:5]
    known = int((queue < log.n_items).sum(1).max())
    users = torch.tensor([3, 4])
    scores = ranker.scores(users, queue)
    assert torch.allclose(ranker.score_small_batch(users, queue[:, -known:]), scores, atol=1e-4)


def test_the_list_and_what_the_limits_moved(model):
    explanation = model.explain("c17", k=6)
    frame = explanation.frame
    shown = frame.filter(pl.col("rank").is_not_null())
    lists = model.recommend(["c17"], k=6)
    assert shown["item"].to_list() == lists["item"].to_list()
    assert shown["score"].to_list() == lists["score"].to_list()
    state = model._state
    without = frame.filter(pl.col("rank_without_limits").is_not_null()).sort("rank_without_limits")
    assert without["rank_without_limits"].to_list() == list(range(1, 7))
    out = frame.filter(pl.col("rank").is_null())["item"].to_list()
    came_in = shown.filter(pl.col("rank_without_limits").is_null())["item"].to_list()
    assert len(out) == len(came_in) > 0
    group = dict(zip(state.catalogue.ids.tolist(), state.limits[0].members.tolist(), strict=True))
    assert all(group[item] for item in out)
    assert not any(group[item] for item in came_in)
    assert list(explanation.prices) == ["popular<=0.3"]
    assert explanation.prices["popular<=0.3"] > 0


def test_reasons_are_items_of_the_history(model, shop):
    taken = set(shop.rows.filter(pl.col("customer") == "c17")["sku"])
    frame = model.explain("c17", k=6).frame.filter(pl.col("rank").is_not_null())
    for because in frame["because"]:
        names = [part.split(" ")[0] for part in because.split(", ")]
        assert set(names) <= taken
        assert len(names) <= 3


def test_the_text(model):
    text = str(model.explain("c17", k=6))
    assert text.splitlines()[0].startswith(" 1. a")
    assert "came in because of the limits" in text
    assert "left out by the limits" in text
    assert "popular<=0.3: a price of" in text


def test_somebody_who_is_not_in_the_log(model):
    explanation = model.explain("guest", k=4, history=["a1", "a7", "a8"])
    shown = explanation.frame.filter(pl.col("rank").is_not_null())
    expected = model.recommend(histories={"guest": ["a1", "a7", "a8"]}, k=4)
    assert shown["item"].to_list() == expected["item"].to_list()


def test_a_method_without_history(shop):
    frame = fh.fit(shop.log(), "popularity").explain("c1", k=3).frame
    assert frame["because"].to_list() == ["", "", ""]
    assert frame["parts"].to_list() == ["popularity 100 %"] * 3
