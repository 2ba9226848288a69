"""Splits against hand-worked cases, a slow reference and properties."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions, MissingValuesWarning, NoTimestampsWarning
from fairhorizon.data.log_files import read_file, write_split
from fairhorizon.data.splits import (
    Split,
    split,
    split_by_time,
    statistics,
    with_feedback,
)
from fairhorizon.errors import ConfigError, DataError

PARTS = ("train", "validation", "test")


def items_of(part: Interactions, user: object) -> list[object]:
    return part.item_ids[part.items[part.user_ids[part.users] == user]].tolist()


@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        (1, (0, 1, 0)),
        (2, (1, 1, 0)),
        (4, (3, 1, 0)),
        (5, (3, 1, 1)),
        (9, (7, 1, 1)),
        (11, (8, 1, 2)),
    ],
)
def test_the_last_fifth_is_test_and_the_one_before_validation(n, sizes):
    log = from_arrays([0] * n, range(n), timestamps=range(n))
    parts = split(log)
    assert tuple(len(getattr(parts, part)) for part in PARTS) == sizes
    assert items_of(parts.train, 0) + items_of(parts.validation, 0) + items_of(
        parts.test, 0
    ) == list(range(n))


def test_users_are_split_apart_by_their_own_time():
    users = ["a", "b"] * 5
    log = from_arrays(users, range(10), timestamps=[9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    parts = split(log)
    assert items_of(parts.train, "a") == [8, 6, 4]
    assert items_of(parts.validation, "a") == [2]
    assert items_of(parts.test, "a") == [0]
    assert items_of(parts.test, "b") == [1]
    assert parts.name == log.name


logs = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 6)), min_size=1, max_size=60
)


def make(rows: list[tuple[int, int, int]], *, timed: bool = True) -> Interactions:
    users, items, times = (list(column) for column in zip(*rows, strict=True))
    return from_arrays(users, items, timestamps=times if timed else None)


@settings(deadline=None)
@given(logs, st.sampled_from([0.2, 0.1, 0.3, 0.5, 0.0]), st.booleans())
def test_per_user_split_agrees_with_a_loop(rows, share, timed):
    log = make(rows, timed=timed)
    parts = split(log, test_share=share, ties="keep")
    for code, user in enumerate(log.user_ids):
        own = log.item_ids[log.items[log.users == code]].tolist()
        tested = round(share * 10) * len(own) // 10
        cut = len(own) - tested
        assert items_of(parts.test, user) == own[cut:]
        assert items_of(parts.validation, user) == own[cut - 1 : cut]
        assert items_of(parts.train, user) == own[: cut - 1]


def test_shuffled_ties_stay_within_their_time_and_depend_on_the_seed():
    log = from_arrays([0] * 40, range(40), timestamps=[1] * 20 + [2] * 20)
    first, same, other = (split(log, ties=seed) for seed in (1, 1, 2))
    assert items_of(first.test, 0) == items_of(same.test, 0)
    assert items_of(first.test, 0) != items_of(other.test, 0)
    assert items_of(first.test, 0) != list(range(32, 40))
    assert set(items_of(first.test, 0)) <= set(range(20, 40))
    assert set(items_of(first.train, 0)[:20]) == set(range(20))


def test_global_cut_by_hand():
    log = from_arrays(range(10), range(10), timestamps=[0, 1, 2, 3, 4, 5, 6, 7, 7, 9])
    parts = split_by_time(log)  # the cut falls between the two sevens: both are test
    assert [getattr(parts, part).timestamps.tolist() for part in PARTS] == [
        [0, 1, 2, 3, 4, 5, 6],
        [],
        [7, 7, 9],
    ]


@settings(deadline=None)
@given(logs, st.floats(0, 0.5), st.floats(0, 0.4))
def test_global_cut_leaks_no_future(rows, test_share, validation_share):
    log = make(rows)
    try:
        parts = split_by_time(log, test_share=test_share, validation_share=validation_share)
    except DataError:  # more equal times than the training part would hold
        tested = math.ceil(len(log) * (test_share + validation_share))
        assert log.timestamps[0] == log.timestamps[-max(tested, 1)]
        return
    times = [getattr(parts, part).timestamps for part in PARTS]
    assert np.array_equal(np.concatenate(times), log.timestamps)
    filled = [part for part in times if len(part)]
    assert all(a.max() < b.min() for a, b in pairwise(filled))


def test_global_cut_without_timestamps_is_a_cut_of_rows():
    parts = split_by_time(from_arrays(range(10), range(10)))
    assert [len(getattr(parts, part)) for part in PARTS] == [7, 1, 2]


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_impossible_shares(share):
    log = from_arrays([1, 2], [1, 2])
    with pytest.raises(ConfigError, match="test_share"):
        split(log, test_share=share)
    with pytest.raises(ConfigError, match="leave something"):
        split_by_time(log, test_share=0.5, validation_share=0.5)


def test_statistics_by_hand():
    found = statistics(from_arrays([1, 1, 2], [5, 6, 5]))
    assert (found.users, found.items, found.interactions) == (2, 2, 3)
    assert (found.per_user, found.per_item, found.density) == (1.5, 1.5, 0.75)


@pytest.fixture
def parts() -> Split:
    users = [user for user in ("a,b", 'say "hi"', "007") for _ in range(5)]
    rows = range(15)
    items = [f"line\r\nend {row % 5}" for row in rows]
    return split(
        from_arrays(
            users,
            items,
            ratings=[row / 2 for row in rows],
            timestamps=rows,
            attributes={"g": items},
        )
    )


def test_written_split_reads_back_with_the_original_ids(parts, tmp_path):
    write_split(parts, tmp_path / "out" / "split")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["split"]
    for part in PARTS:
        mine = getattr(parts, part)
        back = read_file(tmp_path / "out" / "split" / f"{part}.csv", attributes=["g"])
        for ids, codes in (("user_ids", "users"), ("item_ids", "items")):
            assert (
                getattr(back, ids)[getattr(back, codes)].tolist()
                == getattr(mine, ids)[getattr(mine, codes)].tolist()
            )
        assert back.ratings.tolist() == mine.ratings.tolist()
        assert back.timestamps.tolist() == mine.timestamps.tolist()
        assert back.attributes["g"].tolist() == back.item_ids.tolist()


def test_a_full_folder_is_left_alone(parts, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match="already"):
        write_split(parts, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be created"):
        write_split(parts, tmp_path / "file" / "split")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine.txt"]


def test_a_failed_write_leaves_nothing(parts, tmp_path):
    broken = Split(parts.train, parts.validation, None)
    with pytest.raises(AttributeError):
        write_split(broken, tmp_path / "split")
    assert list(tmp_path.iterdir()) == []


def test_feedback_goes_to_the_end_of_training():
    """Training a: x y, b: y; validation a: z. Heard: b x and a w twice; a y, a z are known."""
    log = from_arrays(
        list("aaaabb"), list("xyzwyz"), timestamps=[1, 2, 5, 6, 3, 4], ratings=[5, 4, 1, 1, 3, 1]
    )
    parts = split(log, test_share=0.25)
    assert [items_of(parts.train, user) for user in "ab"] == [["x", "y"], ["y"]]
    assert items_of(parts.validation, "a") == ["z"]
    a, b = 0, 1
    w, x, y, z = range(4)
    longer = with_feedback(parts, np.array([b, a, b, a, a, a]), np.array([x, w, x, y, z, w]))
    assert [items_of(longer.train, user) for user in "ab"] == [["x", "y", "w"], ["y", "x"]]
    assert longer.train.timestamps.tolist() == [1, 2, 3, 4, 5]
    assert longer.train.ratings.tolist() == [5, 4, 3, 4, 4]  # the mean
    assert longer.train.users.tolist() == [a, a, b, b, a]  # in the order observed
    assert longer.validation is parts.validation
    assert longer.test is parts.test
    assert len(parts.train) == 3


def test_feedback_without_times_and_ratings_keeps_its_order():
    log = from_arrays([0, 0, 1, 1], [0, 1, 1, 2])
    parts = split(log, test_share=0)
    longer = with_feedback(parts, np.array([1, 0]), np.array([0, 2]))
    assert longer.train.items.tolist() == [0, 1, 0, 2]
    assert longer.train.timestamps is None
    assert longer.train.ratings is None
    none = with_feedback(parts, *np.zeros((2, 0), dtype=np.int64))
    assert none.train.fingerprint() == parts.train.fingerprint()
    nothing = Split(log.take([]), log, log.take([]))
    with pytest.raises(DataError, match="no training log to add feedback to"):
        with_feedback(nothing, np.array([1]), np.array([0]))


def test_missing_ratings_survive_feedback_and_writing(tmp_path):
    with pytest.warns(MissingValuesWarning):
        log = from_arrays([1, 1, 1, 2, 2, 2], [1, 2, 3, 1, 2, 4], ratings=[1, None, 2, 4, 5, None])
    parts = split(log, test_share=0)  # the last of each user is for validation
    longer = with_feedback(parts, np.array([0]), np.array([3]))
    np.testing.assert_array_equal(longer.train.ratings, [1, np.nan, 4, 5, 10 / 3])
    write_split(parts, tmp_path / "split")
    with pytest.warns(MissingValuesWarning), pytest.warns(NoTimestampsWarning):
        back = read_file(tmp_path / "split" / "train.csv")
    np.testing.assert_array_equal(back.ratings, [1, np.nan, 4, 5])
