"""A folder of parts: the same log as one file, each part read once."""

import os
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairhorizon.data import log_files as module
from fairhorizon.data.interactions import Interactions, MissingValuesWarning, PartsRead
from fairhorizon.data.loading import load
from fairhorizon.data.log_files import part_files
from fairhorizon.errors import DataError, NoColumnError

ROWS = 90


@pytest.fixture
def rows() -> pl.DataFrame:
    """Ids that sort otherwise as text than as numbers, ratings and sellers that may be missing."""
    rng = np.random.default_rng(1)
    pairs = rng.permutation(20 * 15)[:ROWS]
    return pl.DataFrame(
        {
            "user": pairs // 15 * 7,
            "item": pairs % 15 * 9,
            "rating": rng.integers(1, 6, ROWS).astype(float),
            "timestamp": rng.integers(0, 50, ROWS),
            "seller": [f"s{item % 3}" if item % 4 else None for item in (pairs % 15).tolist()],
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def write(frame: pl.DataFrame, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)
    return path


def read(folder: Path, **options: object) -> Interactions:
    return load(folder, cache_dir=folder.parent / "cache", **options)


def assert_same(one: Interactions, other: Interactions) -> None:
    assert one.fingerprint() == other.fingerprint()
    assert one.last_times.tolist() == other.last_times.tolist()
    assert one.columns == other.columns
    assert list(one.further) == list(other.further)
    for name in one.further:
        assert one.further[name].tolist() == other.further[name].tolist()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_parts_are_one_log_and_only_new_ones_are_read(rows, folder, suffix, monkeypatch):
    whole = load(write(rows, folder.parent / f"whole.{suffix}"))
    for number, start in enumerate((0, 20)):
        write(rows[start : start + (20 if number == 0 else 40)], folder / f"p{number}.{suffix}")
    assert read(folder).parts == PartsRead(read=2, kept=0)
    write(rows[60:], folder / f"p2.{suffix}")
    opened = []
    locate = module.locate
    monkeypatch.setattr(module, "locate", lambda *a: opened.append(a[0].name) or locate(*a))
    log = read(folder)
    assert log.parts == PartsRead(read=1, kept=2)
    assert opened == [f"p2.{suffix}"]
    assert_same(log, whole)
    again = read(folder)
    assert again.parts == PartsRead(read=0, kept=3)
    assert_same(again, whole)
    assert log.name == "log"


def test_a_part_that_changed_or_is_read_otherwise_is_read_again(rows, folder):
    first, second = (write(rows[k : k + 45], folder / f"{k}.csv") for k in (0, 45))
    read(folder)
    assert read(folder, time="rating").parts == PartsRead(2, 0)
    write(rows[45:80], second)
    changed = read(folder)
    assert changed.parts == PartsRead(1, 1)
    assert len(changed) == 80
    os.utime(first, ns=(1, 1))  # of the same size, written again
    assert read(folder).parts == PartsRead(1, 1)
    second.unlink()
    assert len(read(folder)) == 45


def test_integers_are_text_as_soon_as_one_part_has_text(rows, folder):
    write(rows[:45], folder / "1.csv")
    assert read(folder).item_ids.dtype == np.int64
    text = rows[45:].with_columns(item=pl.lit("x") + pl.col("item").cast(pl.String))
    write(text, folder / "2.csv")
    log = read(folder)
    assert log.item_ids.tolist() == sorted({*map(str, rows["item"][:45]), *text["item"]})
    assert log.user_ids.tolist() == sorted(set(rows["user"]))
    both = pl.concat([rows[:45].cast({"item": pl.String}), text])
    assert_same(log, load(write(both, folder.parent / "whole.csv")))


def test_repeats_weights_and_missing_ratings_are_those_of_all_parts(rows, folder):
    odd = rows.with_columns(rating=pl.when(pl.int_range(pl.len()) >= 45).then("rating"))
    twice = pl.concat([odd, odd[:10]])
    for number, part in enumerate((twice[:45], twice[45:])):
        write(part, folder / f"{number}.csv")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log = read(folder)
    told = {str(one.message).split(": ", 1)[1] for one in caught}
    assert (
        "10 rows repeat the user and item of another: the first of each pair is kept, 90 rows "
        "of 100" in told
    )
    assert (
        "55 ratings are missing of 100: these rows count as interactions without a rating" in told
    )
    whole = write(twice, folder.parent / "whole.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(log, load(whole))
        weighted = read(folder, weight="timestamp")
        assert weighted.total_weights().sum() == twice["timestamp"].sum()
        assert_same(weighted, load(whole, weight="timestamp"))


def test_a_weight_of_0_in_a_whole_part_is_fine_but_not_in_all(rows, folder):
    write(rows[:45].with_columns(q=0), folder / "1.csv")
    with pytest.raises(DataError, match="q is 0 everywhere"):
        read(folder, weight="q")
    write(rows[45:].with_columns(q=2), folder / "2.csv")
    assert read(folder, weight="q").total_weights().sum() == 90


def test_an_attribute_is_read_from_new_parts_only(rows, folder, monkeypatch):
    """Item 9 k has no seller for k a multiple of 4; a later part may bring one."""
    write(rows[:60], folder / "1.csv")
    with pytest.warns(MissingValuesWarning, match="4 items have no seller of 15"):
        before = read(folder, attributes=["seller"]).attributes["seller"]
    assert before[0] == ""
    write(rows[60:].with_columns(seller=pl.lit("late")), folder / "2.csv")
    opened = []
    locate = module.locate
    monkeypatch.setattr(module, "locate", lambda *a: opened.append(a[0].name) or locate(*a))
    log = read(folder, attributes=["seller"])
    assert set(opened) == {"2.csv"}
    after = dict(zip(log.item_ids.tolist(), log.attributes["seller"].tolist(), strict=True))
    assert after[0] == "late"
    assert after[9] == "s1"
    with pytest.raises(NoColumnError, match="no column 'brand'"):
        read(folder, attributes=["brand"])


def test_a_fault_names_part_and_line_and_leaves_what_was_kept(rows, folder):
    write(rows[:45], folder / "1.csv")
    read(folder)
    kept = {path: path.read_bytes() for path in (folder.parent / "cache").rglob("*.npz")}
    bad = folder / "2.csv"
    bad.write_text("user,item,rating,timestamp,seller\n1,2,3,4,a\n1,3,3,soon,a\n")
    with pytest.raises(DataError, match=r"2\.csv line 3: timestamp 'soon' is not a number"):
        read(folder)
    write(rows[45:].drop("seller"), bad)
    with pytest.raises(DataError) as caught:
        read(folder)
    assert caught.value.file == bad
    assert "has the columns user, item, rating, timestamp, and 1.csv has user, item" in str(
        caught.value
    )
    bad.unlink()
    assert read(folder).parts == PartsRead(0, 1)
    entries = {path: path.read_bytes() for path in kept}
    assert entries == kept


def test_a_damaged_entry_is_read_anew_and_a_store_that_cannot_be_written_is_none(
    rows, folder, monkeypatch
):
    write(rows, folder / "1.csv")
    read(folder)
    (entry,) = (folder.parent / "cache").rglob("*.npz")
    content = entry.read_bytes()
    entry.write_bytes(content[: len(content) // 2])
    assert read(folder).parts == PartsRead(1, 0)
    assert entry.read_bytes() == content
    monkeypatch.setenv("FAIRHORIZON_NO_CACHE", "1")
    assert read(folder).parts == PartsRead(1, 0)
    monkeypatch.delenv("FAIRHORIZON_NO_CACHE")
    (folder.parent / "file").write_text("")
    assert load(folder, cache_dir=folder.parent / "file").parts == PartsRead(1, 0)


def test_parts_are_found_by_name_also_below(folder):
    for name in ("b.csv", "a.parquet", "day=2/x.csv", "_SUCCESS", ".hidden.csv", "notes.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    assert [str(file.relative_to(folder)) for file in part_files(folder)] == [
        "a.parquet",
        "b.csv",
        "day=2/x.csv",
    ]


def test_a_folder_without_parts(folder):
    with pytest.raises(DataError, match="is a folder without parts"):
        load(folder)
