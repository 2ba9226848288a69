"""Lists for people: ids in, ids out, limits kept over the lists of a call."""

import numpy as np
import polars as pl
import pytest

import fairhorizon as fh
from fairhorizon.data.splits import split, uncut
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.limits.groups import popular_group
from fairhorizon.methods import Method, build
from fairhorizon.metrics.shares import whole_showings
from fairhorizon.simulation.feedback import serving_scenario

POPULAR = "popular<=0.3"


def popular_ids(log: fh.Interactions) -> set[str]:
    return set(log.item_ids[popular_group(log.item_counts())].tolist())


@pytest.fixture(scope="module")
def floor_model(shop, settings):
    """At least 30 % of the showings of small sellers."""
    limits = ["seller_size=small>=0.3"]
    return fh.fit(shop.log(), limits=limits, items=shop.articles, settings=settings)


def test_ids_go_in_and_come_out(model, shop):
    lists = model.recommend(["c17", "c4"], k=5)
    assert lists.columns == ["user", "rank", "item", "score", "value"]
    assert lists["user"].to_list() == ["c17"] * 5 + ["c4"] * 5
    assert lists["rank"].to_list() == [1, 2, 3, 4, 5] * 2
    assert set(lists["item"]) <= set(shop.articles["sku"])
    taken = set(shop.rows.filter(pl.col("customer") == "c17")["sku"])
    assert not taken & set(lists.filter(pl.col("user") == "c17")["item"])
    assert lists["score"].is_between(0, 1).all()
    assert lists["value"].is_between(0, 1).all()
    assert lists.to_pandas().shape == (10, 5)


@pytest.mark.parametrize("users", [None, ["c0"], ["c3", "c1", "c20"], [f"c{n}" for n in range(17)]])
def test_every_call_keeps_the_limit_over_its_own_lists(model, shop, users):
    for k in (1, 4, 10):
        lists = model.recommend(users, k=k)
        n = 40 if users is None else len(users)
        assert lists.height == n * k
        popular = lists["item"].is_in(popular_ids(shop.log())).sum()
        assert popular <= whole_showings(0.3 * n * k)


def test_a_floor_is_kept_too(floor_model, shop):
    small = set(shop.articles.filter(pl.col("seller_size") == "small")["sku"])
    for users in (None, ["c5"], ["c5", "c6", "c7"]):
        lists = floor_model.recommend(users, k=7)
        assert lists["item"].is_in(small).sum() >= np.ceil(0.3 * lists.height - 1e-9)


def test_a_call_may_have_other_limits(model, floor_model, shop):
    """They are in place of those of the model, and the next call has those of the model again."""
    limit, floor = "popular<=0.1", "seller_size=small>=0.3"
    before = model.recommend(k=10)
    small = set(shop.articles.filter(pl.col("seller_size") == "small")["sku"])
    strict = model.recommend(k=10, limits=[limit, floor])
    assert strict.height == 400
    assert strict["item"].is_in(popular_ids(shop.log())).sum() <= 40
    assert strict["item"].is_in(small).sum() >= 120
    alone = model.recommend(k=10, limits=floor)
    assert alone.equals(floor_model.recommend(k=10))
    free = model.recommend(k=10, limits=[])
    assert free["value"].sum() > before["value"].sum() > strict["value"].sum()
    assert model.recommend(k=10).equals(before)
    with pytest.raises(ConfigError, match="no column 'brand'"):
        model.recommend(limits=["brand=A<=0.1"])


def test_limits_bind_and_cost_nothing_where_they_do_not(model, shop, settings):
    free = fh.fit(shop.log(), items=shop.articles, settings=settings)
    popular = popular_ids(shop.log())
    assert free.recommend()["item"].is_in(popular).mean() > 0.3
    assert model.limits == (POPULAR,)
    assert free.limits == ()


def test_integer_ids_stay_integers():
    log = fh.load("synthetic:users=20,items=30,interactions_per_user=8")
    lists = fh.fit(log, "ease").recommend([3, "7"], k=2)
    assert lists["user"].to_list() == [3, 3, 7, 7]
    assert lists["item"].dtype == pl.Int64


def test_a_list_is_that_of_a_hand_made_fit_on_the_whole_log(shop):
    log = shop.log()
    model = fh.fit(log, "ease+lists", limits=[POPULAR], settings={"l2": 50.0})
    draft = build(Method.parse("ease+lists@0.3"), {"l2": 50.0}, seed=0)
    chosen = draft.fit(split(log, test_share=0.0))
    by_hand = chosen.ranker.unfitted_copy().fit(uncut(log))
    assert by_hand.fingerprint_ == log.fingerprint()
    recommender = chosen.refitted(uncut(log), sensitive=popular_group(log.item_counts()))
    scores = [one.item_weights_ for one in (recommender.ranker, by_hand)]
    assert (scores[0] == scores[1]).all()
    lists = recommender.recommend(serving_scenario(log, recommender.queue_length), length=5)
    assert model.recommend(k=5)["item"].to_list() == log.item_ids[lists].ravel().tolist()
    assert recommender.sharpness_ == chosen.sharpness_  # chosen on the newest part


def test_every_ranker_of_fcpo_is_fitted_on_the_whole_log(model, shop):
    log, recommender = shop.log(), model._state.recommender
    assert recommender.rankers
    for ranker in recommender.rankers:
        by_hand = type(ranker)(ranker.config, seed=ranker.seed).fit(uncut(log))
        for name, tensor in by_hand.tensors().items():
            assert tensor.equal(ranker.tensors()[name]), name
    assert recommender.sensitive_.numpy().tolist() == popular_group(log.item_counts()).tolist()
    assert recommender.policy_.histories.tolist() == log.user_counts().tolist()


def test_the_whole_log_counts(shop):
    """Without the last item of every user the scores are others."""
    model = fh.fit(shop.log(), "ease")
    assert model._state.recommender.fingerprint_ == shop.log().fingerprint()
    counts = fh.fit(shop.log(), "popularity").recommend(["c0"], k=1)
    most = shop.rows.filter(~pl.col("sku").is_in(_taken(shop, "c0")))["sku"].value_counts()
    assert counts["score"][0] == pytest.approx(most["count"].max(), abs=1.0)


def _taken(shop, user):
    return shop.rows.filter(pl.col("customer") == user)["sku"].to_list()


def test_an_unknown_user_is_named_with_the_remedy(model):
    with pytest.raises(DataError, match=r"user 'nobody' is not in shop \(give what they took"):
        model.recommend(["c1", "nobody"])


def test_people_who_are_not_in_the_log(model, shop):
    known = _taken(shop, "c8")
    lists = model.recommend(histories={"guest": known, "empty": []}, k=6)
    guest = lists.filter(pl.col("user") == "guest")["item"].to_list()
    assert not set(guest) & set(known)
    own = model.recommend(["c8"], k=6)["item"].to_list()
    alone = model.recommend(histories={"guest": known}, k=6)["item"].to_list()
    assert len(set(alone) & set(own)) >= 5  # the same history, but not the same user


def test_an_empty_history_gets_the_popular_items_under_the_limit(model, shop):
    counts = dict(shop.rows["sku"].value_counts().iter_rows())
    popular = popular_ids(shop.log())
    items = model.recommend(histories={"empty": []}, k=10)["item"].to_list()
    inside = [item for item in items if item in popular]
    outside = [item for item in items if item not in popular]
    assert len(inside) == 3
    ranked = sorted(counts, key=lambda item: -counts[item])
    assert {counts[item] for item in inside} == {counts[item] for item in ranked[:3]}
    best = sorted((counts[i] for i in counts if i not in popular), reverse=True)[:7]
    assert sorted((counts[item] for item in outside), reverse=True) == best


@pytest.mark.parametrize("method", ["ease", "mf"])
def test_an_empty_history_gets_the_popular_items_of_any_ranker(shop, method):
    given = {"max_epochs": 1} if method == "mf" else {}
    lists = fh.fit(shop.log(), method, settings=given).recommend(histories={"empty": []}, k=10)
    log = shop.log()
    best = np.argsort(-log.item_counts(), kind="stable")[:10]
    assert lists["item"].to_list() == log.item_ids[best].tolist()


def test_excluded_items_never_appear(model):
    first = model.recommend("c2", k=5)["item"].to_list()
    lists = model.recommend(["c2"], k=5, exclude=first)
    assert lists.height == 5
    assert not set(first) & set(lists["item"])
    assert first[0] not in set(model.recommend(["c2"], k=5, exclude=first[0])["item"])


METHODS = {
    "popularity": {},
    "mf": {"max_epochs": 2},
    "gru4rec": {"max_epochs": 1, "dim": 8},
    "stack": {},
    "ease+quota@0.3": {},
    "ease+control@0.3": {},
    "ease+pmmf@0.3": {},
    "ease+foe": {},
    "lird": {"rounds": 1, "updates": 2, "pmf": {"max_epochs": 1}},
    "fcpo:paper": {"rounds": 1, "horizon": 3, "gru_hidden": 8, "pmf": {"max_epochs": 1}},
}


@pytest.mark.filterwarnings("ignore::fairhorizon.LimitsNotKeptWarning")
@pytest.mark.filterwarnings("ignore:no evaluated round")
@pytest.mark.parametrize("method", METHODS)
def test_any_method_serves_anybody(shop, method):
    model = fh.fit(shop.log(), method, settings=METHODS[method])
    shut = [f"a{item}" for item in range(20)]
    guests = {"guest": ["a30", "a31"], "empty": []}
    lists = model.recommend(["c1", "c2"], k=4, histories=guests, exclude=shut)
    assert lists["user"].unique(maintain_order=True).to_list() == ["c1", "c2", "guest", "empty"]
    assert lists.height == 16
    assert not set(shut) & set(lists["item"])
    for user, taken in (("c1", _taken(shop, "c1")), ("guest", ["a30", "a31"])):
        assert not set(taken) & set(lists.filter(pl.col("user") == user)["item"])


def test_only_candidates_appear(model):
    allowed = [f"a{item}" for item in range(10, 40)]
    lists = model.recommend(k=4, candidates=allowed, exclude=["a11", "a12"])
    assert set(lists["item"]) <= set(allowed) - {"a11", "a12"}


def test_unknown_items_are_ignored_with_a_note(model):
    with pytest.warns(UserWarning, match="exclude: no item is called 'x1', 'x2'"):
        lists = model.recommend(["c2"], k=5, exclude=["x1", "x2"])
    assert lists.equals(model.recommend(["c2"], k=5))
    with pytest.warns(UserWarning, match="candidates: no item is called 'x1'"):
        lists = model.recommend(["c2"], k=2, candidates=["x1", *(f"a{n}" for n in range(60))])
    assert lists.height == 2


@pytest.mark.filterwarnings("ignore:no lists with a Gini index")  # of the engine
def test_a_limit_that_cannot_be_kept_is_reported(shop):
    even = fh.fit(shop.log(), "ease+lists", limits=["gini<=0.05"])
    with pytest.warns(fh.LimitsNotKeptWarning, match="gini<=0.05: not kept by these 2 lists"):
        even.recommend(["c1", "c2"], k=5)


def test_a_list_is_shorter_rather_than_against_the_limit(model, shop):
    popular = sorted(popular_ids(shop.log()))
    assert model.recommend(["c2"], k=5, candidates=popular).height == 0


@pytest.mark.parametrize("k", [0, -3])
def test_a_list_has_a_length(model, k):
    with pytest.raises(ConfigError, match="at least one item"):
        model.recommend(["c2"], k=k)


def test_nobody_gets_nothing(model):
    assert model.recommend([], k=3).height == 0


def test_repeats(model, shop):
    """c9 took its first article long ago and its last one lately; a row a day."""
    rows = shop.rows.filter(pl.col("customer") == "c9")
    newest = shop.rows["day"].max()
    days = {row["sku"]: (newest - row["day"]) / 86_400 for row in rows.to_dicts()}
    between = float(np.median(list(days.values())))
    all_items = [*days, *(f"a{n}" for n in range(60))]
    lists = {
        rule: set(model.recommend(["c9"], k=60, candidates=all_items, repeats=rule)["item"])
        for rule in (None, "no", "yes", f"after {between} days")
    }
    assert lists[None] == lists["no"]
    assert not set(days) & lists["no"]
    some = {item for item in days if days[item] >= between}
    assert set(days) & lists[f"after {between} days"] <= some
    assert set(days) & lists["yes"] >= set(days) & lists[f"after {between} days"] != set()


@pytest.mark.parametrize("text", ["sometimes", "after days", "after -1 days", "7 days"])
def test_repeats_that_make_no_sense(model, text):
    with pytest.raises(ConfigError, match='give "no", "yes" or "after 7 days"'):
        model.recommend(["c1"], repeats=text)


def test_repeats_need_times(shop):
    with pytest.warns(UserWarning, match="no timestamps"):
        log = fh.load(shop.rows.drop("day"), user="customer", item="sku")
    timeless = fh.fit(log, "ease")
    assert timeless.recommend(["c1"], repeats="yes").height == 10
    with pytest.raises(ConfigError, match="the log has no times"):
        timeless.recommend(["c1"], repeats="after 2 days")


def test_repeats_count_from_the_last_time(shop):
    """The row of a pair that is kept is the first; whether it is back counts from the last."""
    newest = int(shop.rows["day"].max())
    first = shop.rows.filter(pl.col("customer") == "c9").row(0, named=True)
    again = pl.DataFrame([{**first, "day": newest}])
    with pytest.warns(UserWarning, match="repeats the user and item"):
        log = shop.log(pl.concat([shop.rows, again]))
    lists = fh.fit(log, "popularity").recommend(["c9"], k=60, repeats="after 2 days")
    assert first["sku"] not in set(lists["item"])
    assert first["sku"] in set(
        fh.fit(shop.log(), "popularity").recommend(["c9"], k=60, repeats="after 2 days")["item"]
    )


def test_new_items_of_the_table_are_shown_where_a_floor_asks_for_them(shop, settings):
    limits = ["new>=0.2"]
    model = fh.fit(shop.log(), limits=limits, items=shop.articles, settings=settings)
    lists = model.recommend(k=5)
    new = {"a60", "a61", "a62"}
    assert lists["item"].is_in(new).sum() == np.ceil(0.2 * 40 * 5)
    assert model.items[-3:] == ["a60", "a61", "a62"]


def test_methods_refuse_limits_they_cannot_keep(shop):
    with pytest.raises(ConfigError, match="ease keeps no limit"):
        fh.fit(shop.log(), "ease", limits=[POPULAR])
    with pytest.raises(ConfigError, match="no column 'colour'; there are seller_size, kind"):
        fh.fit(shop.log(), limits=["colour=red<=0.1"], items=shop.articles)


def test_the_level_in_the_name_of_a_method_is_a_limit(shop):
    model = fh.fit(shop.log(), "ease+lists@0.3")
    assert model.limits == (POPULAR,)
    assert model.recommend(k=5)["item"].is_in(popular_ids(shop.log())).sum() <= 60
    assert fh.fit(shop.log(), "ease+lists@0.3", limits=[POPULAR]).limits == (POPULAR,)
    with pytest.raises(ConfigError, match="two limits"):
        fh.fit(shop.log(), "ease+lists@0.3", limits=["popular<=0.4"])


def test_a_limit_on_an_attribute_can_be_the_level_of_a_method(shop):
    limits = ["seller_size=big<=0.5"]
    model = fh.fit(shop.log(), "ease+quota", limits=limits, items=shop.articles)
    big = set(shop.articles.filter(pl.col("seller_size") == "big")["sku"])
    lists = model.recommend(k=6)
    shares = lists.group_by("user").agg(pl.col("item").is_in(big).sum())["item"]
    assert shares.max() == 3


def test_columns_of_the_log_are_found_by_name(shop):
    rows = shop.rows.join(shop.articles, on="sku")
    log = shop.log(rows)
    assert sorted(log.further) == ["kind", "seller_size"]
    model = fh.fit(log, "ease+lists", limits=["seller_size=small>=0.5"])
    small = set(shop.articles.filter(pl.col("seller_size") == "small")["sku"])
    assert model.recommend(k=4)["item"].is_in(small).sum() >= 80
