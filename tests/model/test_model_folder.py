"""A model in a run folder: what comes back, what the command line does with it, what is refused."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fairhorizon as fh
from fairhorizon.cli.app import run
from fairhorizon.errors import DataError, ModelError

MARKET = "synthetic:users=30,items=40,interactions_per_user=10"


def test_what_was_saved_comes_back(model, tmp_path):
    model.save(tmp_path / "run")
    again = fh.open_model(tmp_path / "run")
    assert again.limits == model.limits
    assert again.users == model.users
    assert again.items == model.items
    assert again.recommend(k=6).equals(model.recommend(k=6))
    guests = {"guest": ["a3", "a9"], "empty": []}
    assert again.recommend(histories=guests).equals(model.recommend(histories=guests))


def test_what_was_observed_comes_back_too(shop, tmp_path):
    model = fh.fit(shop.log(), "ease", items=shop.articles)
    rows = {"customer": ["c1", "new"], "sku": ["a5", "a99"], "day": [10**9, 10**9 + 1]}
    model.observe(pl.DataFrame(rows))
    model.save(tmp_path / "run")
    again = fh.open_model(tmp_path / "run")
    assert again.recommend(k=6).equals(model.recommend(k=6))
    assert again.refresh().recommend(k=6).equals(model.refresh().recommend(k=6))
    again.save(tmp_path / "run")  # over itself
    assert fh.open_model(tmp_path / "run").recommend(k=6).equals(model.recommend(k=6))


def test_the_command_line_serves_the_same_lists_now(shop, tmp_path):
    model = fh.fit(shop.log(), "ease+lists", limits=["popular<=0.3"])
    model.save(tmp_path / "run")
    out = tmp_path / "lists.csv"
    assert run(["recommend", str(tmp_path / "run"), "--out", str(out), "--k", "6"]) == 0
    lists = pl.read_csv(out)
    own = model.recommend(k=6)
    for column in ("user", "rank", "item"):
        assert lists[column].to_list() == own[column].to_list()


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_command_line_knows_what_was_observed_and_what_is_new(shop, tmp_path, jobs):
    """New customers and articles, and articles that only the table has."""
    limits = ["popular<=0.3", "new>=0.1"]
    model = fh.fit(shop.log(), "ease+lists", limits=limits, items=shop.articles)
    rows = {"customer": ["c1", "new"], "sku": ["a5", "a99"], "day": [10**9, 10**9 + 1]}
    model.observe(pl.DataFrame(rows)).save(tmp_path / "run")
    out = tmp_path / "lists.csv"
    words = ["recommend", str(tmp_path / "run"), "--out", str(out), "--k", "6"]
    assert run([*words, "--jobs", str(jobs)]) == 0
    lists, own = pl.read_csv(out), model.recommend(k=6)
    assert lists["item"].is_in(["a60", "a61", "a62", "a99"]).sum() >= 0.1 * lists.height
    if jobs == 1:  # of several blocks only the limits are the same
        for column in ("user", "rank", "item"):
            assert lists[column].to_list() == own[column].to_list()
    assert run([*words, "--user", "new"]) == 0
    assert pl.read_csv(out)["user"].to_list() == 6 * ["new"]
    assert "a99" not in pl.read_csv(out)["item"].to_list()


@pytest.mark.parametrize("method", ["ease", "ease+lists@0.3"])
def test_fit_all(tmp_path, capsys, method):
    folder, out = tmp_path / "run", tmp_path / "lists.csv"
    assert run(["fit", method, "--all", "--data", MARKET, "--out", str(folder)]) == 0
    assert run(["recommend", str(folder), "--out", str(out), "--k", "5"]) == 0
    model = fh.open_model(folder)
    assert model.recommend(k=5)["item"].to_list() == pl.read_csv(out)["item"].to_list()
    limits = ["popular<=0.3"] if "@" in method else []
    by_hand = fh.fit(MARKET, method.partition("@")[0], limits=limits)
    assert by_hand.recommend(k=5).equals(model.recommend(k=5))
    capsys.readouterr()
    assert run(["evaluate", str(folder)]) == 1
    reason = "was fitted on the whole log: nothing is left to test on (fit without --all)"
    assert reason in capsys.readouterr().err
    assert run(["recommend", str(folder), "--out", str(out), "--as-of", "training"]) == 1
    assert "leave out --as-of training" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("in_log", [True, False])
def test_fit_all_of_a_file(shop, tmp_path, monkeypatch, in_log):
    """With weights and limits on a column of the log or of a table, at a relative path."""
    monkeypatch.chdir(tmp_path)
    rows = shop.rows.with_columns(quantity=1 + pl.int_range(pl.len()) % 5)
    articles = shop.articles.rename({"sku": "item"})
    whole = rows.join(shop.articles, on="sku", how="left") if in_log else rows
    whole.write_csv("log.csv")
    articles.write_csv("items.csv")
    words = ["--data", "log.csv", "--user", "customer", "--item", "sku", "--timestamp", "day"]
    words += ["--weight", "quantity", "--limit", "seller_size=small>=0.4"]
    words += ["--limit", "popular<=0.3"] + ([] if in_log else ["--item-table", "items.csv"])
    assert run(["fit", "ease+lists", "--all", *words, "--out", "run"]) == 0
    assert run(["recommend", "run", "--out", "lists.csv", "--k", "5"]) == 0
    model = fh.open_model("run")
    assert model.recommend(k=5)["item"].to_list() == pl.read_csv("lists.csv")["item"].to_list()
    model.observe(rows[:3].with_columns(pl.col("day") + 10**9)).refresh()
    model.save("again")
    small = {f"a{item}" for item in range(63) if item % 3 == 0}
    for one in (model, fh.open_model("again")):
        assert one.recommend(k=5)["item"].is_in(small).sum() >= 80


def test_all_is_no_split_and_no_resumption(tmp_path, capsys):
    words = ["fit", "ease", "--all", "--data", MARKET, "--out", str(tmp_path / "run")]
    for more in (["--split", "time"], ["--resume"]):
        assert run([*words, *more]) != 0
        assert "--all" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_that_keeps_test_items_is_refused(tmp_path):
    folder = tmp_path / "run"
    assert run(["fit", "ease", "--data", MARKET, "--out", str(folder)]) == 0
    with pytest.raises(ModelError, match=r"fitted on a part of its log.* \(fit it with --all"):
        fh.open_model(folder)


def test_a_folder_without_a_model_and_one_with_something_else(model, tmp_path):
    with pytest.raises(ModelError, match="no model here"):
        fh.open_model(tmp_path / "nothing")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ModelError, match="holds something else"):
        model.save(tmp_path)


def test_a_log_that_has_changed_is_noticed(shop, tmp_path):
    fh.fit(shop.log(), "ease").save(tmp_path / "run")
    file = tmp_path / "run" / "log.parquet"
    pl.read_parquet(file)[:-1].write_parquet(file)
    with pytest.raises(ModelError, match=r"log\.parquet: has changed since it was written"):
        fh.open_model(tmp_path / "run")
    file.unlink()
    with pytest.raises(ModelError, match=r"log\.parquet: is missing \(copy the whole folder"):
        fh.open_model(tmp_path / "run")


def test_items_that_nobody_took_come_back(tmp_path):
    """One of these 300 items, and user 60, have an id and no row."""
    log = fh.load("synthetic:users=60,items=300")
    model = fh.fit(replace(log, user_ids=np.append(log.user_ids, 60)), "ease")
    model.save(tmp_path / "run")
    again = fh.open_model(tmp_path / "run")
    assert again.items == model.items == list(range(300))
    assert again.users == model.users == list(range(61))
    assert again.recommend(k=6).equals(model.recommend(k=6))
    out = tmp_path / "lists.csv"
    assert run(["recommend", str(tmp_path / "run"), "--out", str(out), "--k", "6"]) == 0
    assert pl.read_csv(out)["item"].to_list() == model.recommend(k=6)["item"].to_list()
    rows = {"user": [0], "item": [300], "rating": [5.0]}
    rows["timestamp"] = [int(log.timestamps[-1]) + 1]
    model.observe(pl.DataFrame(rows)).refresh()
    assert model.items == list(range(301))


@pytest.mark.parametrize("time", ["day", None])
@pytest.mark.filterwarnings("ignore::fairhorizon.data.interactions.NoTimestampsWarning")
def test_weights_and_what_was_bought_again_come_back(shop, tmp_path, time):
    again = shop.rows[::7].with_columns(pl.col("day") + 3_600)
    rows = pl.concat([shop.rows, again]).sort("day")
    rows = rows.with_columns(quantity=1 + pl.int_range(pl.len()) % 5)
    if time is None:
        rows = rows.drop("day")
    how = {"user": "customer", "item": "sku", "time": time, "weight": "quantity"}
    model = fh.fit(fh.load(rows[:300], **how), "ease", settings={"l2": 50.0})
    model.observe(rows[300:])
    model.save(tmp_path / "run")
    opened = fh.open_model(tmp_path / "run")
    whole = fh.load(rows, **how)
    for one in (model.refresh(), opened.refresh()):
        assert one._log.fingerprint() == whole.fingerprint()
        assert one._log.total_weights().tolist() == whole.total_weights().tolist()
        assert one._log.repeated.after.tolist() == whole.repeated.after.tolist()
    by_hand = fh.fit(whole, "ease", settings={"l2": 50.0}).recommend(k=5)
    assert by_hand.equals(model.recommend(k=5))
    plain = fh.fit(shop.log(), "ease", settings={"l2": 50.0})
    assert not by_hand.equals(plain.recommend(k=5))
    with pytest.raises(DataError, match="no column 'quantity' in what was observed"):
        model.observe(rows.drop("quantity"))


def test_limits_on_areas(shop, tmp_path):
    north = pl.col("sku").str.slice(1).cast(pl.Int64) % 2
    rows = shop.rows.with_columns(latitude=50.0 + north, longitude=8.0 + 0 * north)
    log = fh.load(rows, user="customer", item="sku", time="day")
    model = fh.fit(log, "ease+lists", limits=["area=50.97_8.21<=0.25"], area_km=50)
    model.save(tmp_path / "run")
    for one in (model, fh.open_model(tmp_path / "run")):
        shown = one.recommend(k=4)["item"].str.slice(1).cast(pl.Int64)
        assert (shown % 2 == 1).sum() <= 40
