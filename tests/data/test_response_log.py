"""A record of answers: read by hand, who left, and what is refused."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.response_log import DAY, ResponseLog, load_responses
from fairhorizon.errors import ConfigError, DataError

LOG = from_arrays(["u", "v"], ["a", "b"], timestamps=np.array([1, 2]), name="shop")
ROWS = [
    *[("v", "b", 5, 1), ("u", "a", 9, 0), ("v", "new", 7, 0), ("u", "b", 2, 1)],
    ("w", "a", 2, 0),
    ("v", "a", 7, 1),
]


def record(rows: list[tuple[str, str, float, int]] = ROWS, log: Interactions = LOG) -> ResponseLog:
    names = ["user", "item", "time", "liked"]
    return load_responses(pl.DataFrame(rows, schema=names, orient="row"), log)


def test_showings_are_by_user_and_time_and_equal_times_in_the_order_of_the_file() -> None:
    read = record()
    assert read.ids == ["u", "v", "w"]
    assert read.users.tolist() == [0, 0, 1, 1, 1, 2]
    assert read.times.tolist() == [2, 9, 5, 7, 7, 2]
    assert read.items.tolist() == [1, 0, 1, -1, 0, 0]  # -1: the log has no "new"
    assert read.liked.tolist() == [True, False, True, False, True, False]
    assert read.counts.tolist() == [2, 3, 1]
    assert read.started.tolist() == [2, 5, 2]
    assert read.ended.tolist() == [9, 7, 2]


def test_who_was_shown_nothing_in_the_last_days_has_left() -> None:
    times = {"u": (0, 10), "v": (0, 5, 7), "w": (3,), "late": (10,)}
    rows = [(user, "a", DAY * day, int(day > 0)) for user, own in times.items() for day in own]
    read = record(rows)
    assert read.ids == ["late", "u", "v", "w"]
    assert read.left(4).tolist() == [False, False, False, True]
    assert read.left(2.5).tolist() == [False, False, True, True]
    assert read.left(3).tolist() == [False, False, False, True]  # exactly so long is not longer
    read.check(9)
    with pytest.raises(ConfigError, match="the answers are of 10 days: nobody can be seen to be"):
        read.check(10)


@pytest.mark.parametrize(("liked", "what"), [(0, "liked"), (1, "not liked")])
def test_answers_of_one_kind_teach_nothing(liked: int, what: str) -> None:
    rows = [("u", "a", 0.0, liked), ("u", "b", DAY * 3, liked)]
    with pytest.raises(DataError, match=f"nothing in the answers was {what} "):
        record(rows).check(1)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_files_are_read_like_frames(suffix: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(ROWS, schema=["user", "item", "time", "liked"], orient="row")
    file = tmp_path / f"answers.{suffix}"
    if suffix == "parquet":
        frame.with_columns(pl.col("liked").cast(pl.Boolean), propensity=0.5).write_parquet(file)
    else:
        frame.write_csv(file, separator="," if suffix == "csv" else "\t")
    for name, expected in vars(record()).items():
        assert list(getattr(load_responses(file, LOG), name)) == list(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item,time\nu,a,1\n", "no column is called 'liked' (it says 1 where the user liked"),
        ("user,item,liked\nu,a,1\n", "no column looks like the time (call it time; there are"),
        ("user,item,time,liked\nu,a,1,1\nu,b,2,3\n", "line 3: liked 3 is neither 0 nor 1 (give 1"),
        ("user,item,time,liked\nu,a,1,1\nu,b,x,0\n", "line 3: time 'x' is not a number"),
        ("user,item,time,liked\nu,a,1,\n", "line 2: liked is missing"),
        ("user,item,time,liked\nu,z,1,1\n", "no item is an item of shop (give the ids of the log"),
        ("user,item,time,liked\n", "answers.csv: "),
    ],
)
def test_faults_are_named_with_file_line_and_remedy(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "answers.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_responses(file, LOG)
    assert str(file) in str(caught.value)
    assert message in str(caught.value)
