"""Logs written to files are the same log when they are read again."""

import importlib

import polars as pl
import pytest

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.loading import load
from fairhorizon.data.log_files import read_file, write_log, write_parts
from fairhorizon.errors import DataError

LARGE = "synthetic-large:users=40,items=60,interactions=900,seed=5"


@pytest.fixture(params=[0, 1], ids=["integers", "text"])
def log(request, monkeypatch):
    monkeypatch.setattr(importlib.import_module("fairhorizon.data.log_files"), "ROWS_AT_ONCE", 250)
    return load(f"{LARGE},text_ids={request.param}")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_or_parts_read_back_are_the_same_log(log, suffix, tmp_path):
    """All items have rows here, so that all ids come back."""
    assert log.item_counts().min() > 0
    write_log(log, tmp_path / f"log.{suffix}")
    assert read_file(tmp_path / f"log.{suffix}").fingerprint() == log.fingerprint()
    write_parts(log, tmp_path / "parts", 7, suffix)
    assert len(list((tmp_path / "parts").iterdir())) == 7
    back = load(tmp_path / "parts", cache_dir=tmp_path / "cache")
    assert back.fingerprint() == log.fingerprint()
    first = read_file(tmp_path / "parts" / f"part-0001.{suffix}")
    assert first.timestamps.max() <= log.timestamps[len(log) // 7]


def test_text_is_quoted_numbers_are_not(tmp_path):
    log = from_arrays(["a,b", 'q"x'], [1, 2], ratings=[0.5, 2], timestamps=[3, 4])
    write_log(log, tmp_path / "log.csv")
    text = 'user,item,rating,timestamp\n"a,b",1,0.5,3\n"q""x",2,2.0,4\n'
    assert (tmp_path / "log.csv").read_text() == text
    write_log(log, tmp_path / "log.parquet")
    assert pl.read_parquet(tmp_path / "log.parquet").rows() == [
        ("a,b", 1, 0.5, 3),
        ('q"x', 2, 2.0, 4),
    ]


def test_an_existing_folder_is_left_alone(log, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match="already exists"):
        write_parts(log, tmp_path, 2, "csv")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
