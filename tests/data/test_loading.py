"""One way in: frames of any library, files and named sets give the same log."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fairhorizon as fh
from fairhorizon.data.items import log_attribute, merged_tables
from fairhorizon.data.loading import load_items
from fairhorizon.errors import DataError, NoColumnError

ROWS = {
    "customer": ["eve", "eve", "adam", "adam", "eve"],
    "sku": [7, 9, 7, 8, 8],
    "ts": [30, 10, 20, 40, 50],
    "shop": ["x", None, "x", "y", "y"],
}
COLUMNS = {"user": "customer", "item": "sku", "time": "ts"}


@pytest.fixture(scope="module")
def log() -> fh.Interactions:
    return fh.load(pl.DataFrame(ROWS), **COLUMNS)


@pytest.mark.parametrize("kind", ["pandas", "arrow", "lazy", "dict", "csv", "parquet"])
def test_all_sources_give_the_same_log(log, kind, tmp_path):
    frame = pl.DataFrame(ROWS)
    file = tmp_path / f"log.{kind}"
    if kind == "csv":
        frame.write_csv(file)
    if kind == "parquet":
        frame.write_parquet(file)
    sources = {
        "pandas": pd.DataFrame(ROWS),
        "arrow": pa.table(ROWS),
        "lazy": frame.lazy(),
        "dict": ROWS,
        "csv": file,
        "parquet": file,
    }
    other = fh.load(sources[kind], **COLUMNS)
    assert other.fingerprint() == log.fingerprint()
    assert log_attribute(other, "shop").tolist() == ["x", "y", ""]
    assert dict(other.columns) == {"user": "customer", "item": "sku", "timestamp": "ts"}


def test_columns_are_found_by_their_usual_names_or_positions(log):
    frame = pl.DataFrame(ROWS).rename({"customer": "user_id", "sku": "item_id"})
    assert fh.load(frame).fingerprint() == log.fingerprint()
    assert fh.load(pl.DataFrame(ROWS), user=0, item=1, time=2).fingerprint() == log.fingerprint()


def test_further_columns_wait_until_they_are_asked_for(log):
    assert list(log.further) == ["shop"]
    assert not log.further._known
    assert log_attribute(log, "shop").tolist() == ["x", "y", ""]  # of 7, 8, 9
    with pytest.raises(NoColumnError, match="no column 'colour'"):
        log_attribute(log, "colour")


def test_a_part_of_a_log_keeps_its_columns(log):
    part = log.take([0, 1])
    assert log_attribute(part, "shop").tolist() == ["x", "y", ""]
    assert part.last_times.tolist() == [10, 20]


@pytest.mark.parametrize(("repeats", "time"), [("first", 10), ("last", 60)])
def test_the_last_time_of_a_pair_is_known_whichever_row_is_kept(repeats, time):
    rows = pl.DataFrame({"user": ["a", "a", "b"], "item": [1, 1, 2], "time": [60, 10, 30]})
    with pytest.warns(UserWarning, match="repeats"):
        log = fh.load(rows, repeats=repeats)
    kept = log.users == 0
    assert log.timestamps[kept].tolist() == [time]
    assert log.last_times[kept].tolist() == [60]


@pytest.mark.parametrize("source", [3, object(), [1, 2]])
def test_what_is_no_log_is_refused(source):
    with pytest.raises(DataError, match=r"give a pandas or polars frame|no column looks like"):
        fh.load(source)


def test_a_table_of_items_from_anything(tmp_path):
    rows = {"sku": [9, 7, 8], "size": ["s", "m", None]}
    pl.DataFrame(rows).write_csv(tmp_path / "items.csv")
    for source in (pl.DataFrame(rows), pd.DataFrame(rows), pa.table(rows), tmp_path / "items.csv"):
        table = load_items(source, item="sku")
        assert table.attribute("size", [7, 8, 9]).tolist() == ["m", "", "s"]
    with pytest.raises(DataError, match="item 10 of the log is not in the table"):
        table.attribute("size", [7, 10])
    with pytest.raises(NoColumnError, match="no column 'weight'"):
        table.attribute("weight", [7])


def test_two_tables_as_one():
    first = load_items(pl.DataFrame({"item": [1, 2], "a": ["x", None]}))
    second = load_items(pl.DataFrame({"item": [2, 3], "a": ["y", "z"], "b": ["u", "v"]}))
    both = merged_tables(first, second)
    assert both.ids.dtype == np.int64
    assert both.attribute("a", [1, 2, 3]).tolist() == ["x", "y", "z"]
    assert both.attribute("b", [1, 2, 3]).tolist() == ["", "u", "v"]
