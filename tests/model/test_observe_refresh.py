"""What is observed counts at once, and a refresh is a fit from scratch with the same settings."""

import polars as pl
import pytest

import fairhorizon as fh
from fairhorizon.data.splits import uncut
from fairhorizon.errors import DataError
from fairhorizon.limits.groups import popular_group

LIMIT = "popular<=0.3"


def halves(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    return rows[: rows.height // 2], rows[rows.height // 2 :]


def from_scratch(model: fh.Model, log: fh.Interactions) -> fh.Model:
    """A model with everything that another one has chosen, fitted on a log."""
    group = popular_group(log.item_counts())
    recommender = model._state.recommender.refitted(uncut(log), sensitive=group)
    return fh.Model(recommender, model.method, log, limits=model._limits)


@pytest.mark.parametrize("method", ["fcpo", "ease+lists", "stack", "itemknn"])
def test_observe_and_refresh_equal_a_fit_on_the_whole_log(shop, settings, method):
    first, second = halves(shop.rows)
    limits = [] if method in ("stack", "itemknn") else [LIMIT]
    given = settings if method == "fcpo" else {}
    model = fh.fit(shop.log(first), method, limits=limits, settings=given)
    model.observe(second[:100]).observe(second[100:]).refresh()
    whole = from_scratch(model, shop.log())
    assert model._state.recommender.fingerprint_ == shop.log().fingerprint()
    lists = model.recommend(k=8)
    assert lists.equals(whole.recommend(k=8))
    assert lists.height == 40 * 8


def test_with_given_settings_a_refresh_equals_fit(shop):
    """Closed form, and nothing is chosen: the settings are all given."""
    first, second = halves(shop.rows)
    given = {"l2": 80.0, "half_life": 4.0}
    model = fh.fit(shop.log(first), "ease:recent", settings=given).observe(second).refresh()
    assert model.recommend(k=8).equals(
        fh.fit(shop.log(), "ease:recent", settings=given).recommend(k=8)
    )


def test_histories_change_at_once(shop):
    model = fh.fit(shop.log(), "ease:recent", settings={"half_life": 1.0})
    before = model.recommend(["c1"], k=5)
    taken = before["item"][0]
    day = int(shop.rows["day"].max()) + 86_400
    model.observe(pl.DataFrame({"customer": ["c1"], "sku": [taken], "day": [day]}))
    after = model.recommend(["c1"], k=5)
    assert taken not in set(after["item"])
    history = [*shop.rows.filter(pl.col("customer") == "c1")["sku"], taken]
    same = model.recommend(histories={"guest": history}, k=5)
    assert after["item"].to_list() == same["item"].to_list()
    # the others are as before
    assert model.recommend(["c2"], k=5).equals(
        fh.fit(shop.log(), "ease:recent", settings={"half_life": 1.0}).recommend(["c2"], k=5)
    )


def test_new_users_are_known_at_once(shop):
    model = fh.fit(shop.log(), "ease")
    rows = {"customer": ["newbie"] * 2, "sku": ["a3", "a9"], "day": [10**9, 10**9 + 1]}
    model.observe(pl.DataFrame(rows))
    lists = model.recommend(["newbie"], k=4)
    assert lists["item"].to_list() == (
        model.recommend(histories={"x": ["a3", "a9"]}, k=4)["item"].to_list()
    )
    assert model.users[-1] == "newbie"
    assert model.recommend(k=1).height == 41
    model.refresh()
    assert "newbie" in model.users
    assert model.recommend(["newbie"], k=4).height == 4


def test_a_new_item_has_the_mean_score_of_items_that_share_its_attributes(shop):
    model = fh.fit(shop.log(), "ease", items=shop.articles)
    scores = dict(model.recommend(["c7"], k=63, repeats="yes").select("item", "score").iter_rows())
    size = dict(shop.articles.select("sku", "seller_size").iter_rows())
    kind = dict(shop.articles.select("sku", "kind").iter_rows())
    for item in ("a60", "a61", "a62"):
        means = [
            sum(same := [scores[f"a{n}"] for n in range(60) if of[f"a{n}"] == of[item]]) / len(same)
            for of in (size, kind)
        ]
        assert scores[item] == pytest.approx(sum(means) / 2, rel=1e-4, abs=1e-6)


def test_an_observed_item_joins_at_once_and_has_scores_of_its_own_after_a_refresh(shop):
    model = fh.fit(shop.log(), "ease", items=shop.articles)
    rows = pl.DataFrame(
        {
            "customer": [f"c{n}" for n in range(10)],
            "sku": ["a99"] * 10,
            "day": [10**9 + n for n in range(10)],
            "seller_size": ["small"] * 10,
            "kind": ["k1"] * 10,
        }
    )
    model.observe(rows)
    assert model.items[-1] == "a99"
    scores = dict(model.recommend(["c20"], k=64, repeats="yes").select("item", "score").iter_rows())
    small = [scores[f"a{n}"] for n in range(60) if n % 3 == 0]
    first = [scores[f"a{n}"] for n in range(60) if n % 5 == 1]
    mean = (sum(small) / len(small) + sum(first) / len(first)) / 2
    assert scores["a99"] == pytest.approx(mean, rel=1e-4, abs=1e-6)
    assert "a99" not in set(model.recommend(["c3"], k=63)["item"])  # who took it
    model.refresh()
    again = dict(model.recommend(["c20"], k=64, repeats="yes").select("item", "score").iter_rows())
    assert again["a99"] != pytest.approx(mean, rel=1e-3)


def test_a_floor_for_new_items_follows_what_is_observed(shop):
    model = fh.fit(shop.log(), "ease+lists", limits=["new>=0.2"], items=shop.articles)
    new = {"a60", "a61", "a62"}
    assert model.recommend(k=5)["item"].is_in(new).sum() == 40
    rows = {"customer": ["c1"], "sku": ["a99"], "day": [10**9]}
    model.observe(pl.DataFrame(rows))
    assert model.recommend(k=5)["item"].is_in(new | {"a99"}).sum() == 40
    model.refresh()
    assert model.recommend(k=5)["item"].is_in(new).sum() == 40  # a99 was taken by now


def test_when_an_item_was_taken_last_survives_a_refresh(shop, tmp_path):
    newest = int(shop.rows["day"].max())
    row = shop.rows.filter(pl.col("customer") == "c9").row(0, named=True)
    later = pl.DataFrame([{**row, "day": newest + 86_400}])
    model = fh.fit(shop.log(), "popularity")

    def shown() -> set[str]:
        return set(model.recommend(["c9"], k=60, repeats="after 3 days")["item"])

    assert row["sku"] in shown()
    assert row["sku"] not in (model.observe(later), shown())[1]
    assert row["sku"] not in (model.refresh(), shown())[1]
    assert row["sku"] not in (model.observe(later).refresh(), shown())[1]
    model.save(tmp_path / "run")
    model = fh.open_model(tmp_path / "run")
    assert row["sku"] not in shown()
    far = pl.DataFrame({"customer": ["c1"], "sku": ["a1"], "day": [newest + 9 * 86_400]})
    assert row["sku"] in (model.observe(far), shown())[1]


def test_rows_without_the_columns_of_the_log_are_refused(model):
    with pytest.raises(DataError, match=r"no column 'day' in what was observed \(give the columns"):
        model.observe(pl.DataFrame({"customer": ["c1"], "sku": ["a1"]}))
