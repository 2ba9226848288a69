"""A model that was fitted with answers: lists by what a like is worth, by ids."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import fairhorizon as fh
from fairhorizon.data.response_log import load_responses
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.fcpo.retention import replay
from fairhorizon.fcpo.retention.replay import worth_of
from fairhorizon.limits.groups import popular_group

DAY, USERS, DAYS = 86_400, 40, 30


@pytest.fixture(scope="module")
def answers(shop) -> pl.DataFrame:
    """Who likes nothing twice in a row leaves; after the log, an article a day."""
    draw, rows = np.random.default_rng(5), []
    begin = DAY * len(shop.rows)
    for user in range(USERS):
        before = True
        for day in range(DAYS):
            liked = bool(draw.random() < 0.6)
            rows.append((f"c{user}", f"a{draw.integers(62)}", begin + DAY * day, int(liked)))
            if not liked and not before:
                break
            before = liked
    rows.append(("stranger", "a1", begin, 1))
    return pl.DataFrame(rows, schema=["user", "item", "time", "liked"], orient="row")


@pytest.fixture(scope="module")
def long_model(shop, settings, answers) -> fh.Model:
    return fh.fit(
        shop.log(),
        limits=["popular<=0.3"],
        items=shop.articles,
        settings=settings,
        answers=answers,
        away=5,
    )


def worth(model: fh.Model, user: str) -> float:
    return model.explain(user, 3, value="long").worth


@pytest.mark.slow
def test_without_the_value_everything_is_as_before(model, long_model):
    assert long_model.recommend(k=5).equals(model.recommend(k=5))
    assert long_model.explain("c1", 5).text == model.explain("c1", 5).text
    assert long_model.explain("c1", 5).worth is None
    assert model.retention is None


@pytest.mark.slow
def test_lists_keep_the_limit_and_values_are_multiplied_by_worth(shop, long_model):
    log = shop.log()
    popular = set(log.item_ids[popular_group(log.item_counts())].tolist())
    plain, long = long_model.recommend(k=5), long_model.recommend(k=5, value="long")
    counts = [some["item"].is_in(popular).sum() for some in (plain, long)]
    assert counts == [int(0.3 * len(plain))] * 2
    assert not plain["item"].equals(long["item"])
    both = plain.join(long, on=["user", "item"], suffix="_long").filter(pl.col("value") > 0)
    assert both["score"].to_list() == pytest.approx(both["score_long"].to_list())
    found = (both["value_long"] / both["value"]).to_list()
    own = {user: worth(long_model, user) for user in both["user"].unique()}
    assert found == pytest.approx([own[user] for user in both["user"]], rel=1e-4)
    assert max(found) > 1.2 * min(found)


def test_explain_says_what_a_like_is_worth(long_model):
    why = long_model.explain("c3", 4, value="long")
    assert f"a like of this user counts {why.worth:.3g} times, by what follows it" in str(why)
    some = long_model.recommend(["c3"], 4, value="long")
    assert (
        why.frame.filter(pl.col("rank").is_not_null())["value"].to_list() == some["value"].to_list()
    )


def test_users_of_the_record_are_worth_what_some_were_in_it(shop, long_model, answers):
    retention, state = long_model.retention, long_model.state
    record = load_responses(answers, shop.log())
    assert len(retention.users) == USERS + 1
    assert retention.until == record.until
    states = replay.before_record(state.users.log, record, state.recommender.queue_length)
    own = worth_of(state.recommender, states, retention, record.ids)
    usual = retention.usual
    assert 1 <= usual.least < usual.mean < usual.most
    assert usual.least / usual.mean * 0.999 < own.min() < 1 < own.max() <= usual.most / usual.mean


def test_newcomers_have_the_worth_of_newcomers(long_model):
    histories = {"one": ["a1", "a2"], "two": ["a1", "a2"], "c3": ["a1", "a2"]}
    lists = long_model.recommend(histories=histories, k=3, value="long")
    values = {name: lists.filter(pl.col("user") == name)["value"][0] for name in histories}
    assert values["one"] == values["two"]
    nobody = long_model.explain("nobody", 3, history=[], value="long")
    assert nobody.worth > 0


def test_one_request_after_the_other(long_model):
    server = long_model.server(value="long")
    for number in range(30):
        server.recommend(f"c{number}", 4)
        assert server.guard.sensitive <= 0.3 * server.guard.shown + 1e-9
    first, plain = (long_model.server(value=value).recommend("c5", 3) for value in ("long", "ndcg"))
    ratio = first["value"][0] / plain["value"][0]
    assert ratio == pytest.approx(worth(long_model, "c5"), rel=1e-4)


def test_the_folder_keeps_it_and_a_refresh_too(long_model, model, tmp_path: Path):
    expected = long_model.recommend(k=4, value="long")
    long_model.save(tmp_path / "run")
    again = fh.open_model(tmp_path / "run")
    assert again.recommend(k=4, value="long").equals(expected)
    again.refresh()
    assert again.recommend(k=4, value="long").equals(expected)
    model.save(tmp_path / "run")  # one without answers takes its place
    with pytest.raises(ConfigError, match="has learned from no answers"):
        fh.open_model(tmp_path / "run").recommend(k=4, value="long")


@pytest.mark.slow
def test_small_blocks_of_users_stand_where_large_ones_do(shop, long_model, answers, monkeypatch):
    monkeypatch.setattr(replay, "CELLS_AT_ONCE", 60)
    log, model = long_model.state.users.log, long_model.state.recommender
    record = load_responses(answers, shop.log())
    blocks = list(replay._blocks(torch.from_numpy(record.counts), 60))
    assert sorted(torch.cat(blocks).tolist()) == list(range(USERS + 1))
    assert len(blocks) > 5
    assert all(len(rows) == 1 or len(rows) * record.counts[rows].max() <= 60 for rows in blocks)
    found = replay.learn_from_answers(model, log, record, away=5)
    for user in ("c0", "c17", "stranger"):
        one, other = (
            some.responses_of([user], torch.zeros(1)) for some in (found, long_model.retention)
        )
        assert torch.equal(one.churn(), other.churn())


def test_what_cannot_be_is_refused(shop, model, answers):
    for call in (model.recommend, model.server, lambda **more: model.explain("c1", **more)):
        with pytest.raises(ConfigError, match=r"has learned from no answers .*--answers FILE"):
            call(value="long")
    with pytest.raises(ConfigError, match=r"value='later' \(give \"ndcg\" or \"long\"\)"):
        model.recommend(value="later")
    with pytest.raises(ConfigError, match="ease does not make its lists of values"):
        fh.fit(shop.log(), "ease", answers=answers, away=5)
    with pytest.raises(ConfigError, match="nobody can be seen to be away for 40"):
        fh.fit(shop.log(), "ease+lists", answers=answers, away=40)
    with pytest.raises(ConfigError, match="away for 0 days"):
        fh.fit(shop.log(), "ease+lists", answers=answers, away=0)
    with pytest.raises(DataError, match="no column is called 'liked'"):
        fh.fit(shop.log(), "ease+lists", answers=answers.drop("liked"), away=5)
