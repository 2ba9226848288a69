"""The log: codes, order, repeats, frames and the place of faults."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhorizon.data.frames import from_arrays, from_frame
from fairhorizon.data.interactions import (
    Interactions,
    MissingValuesWarning,
    NoTimestampsWarning,
    RepeatsWarning,
)
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.limits.groups import attribute_group


def triples(log: Interactions) -> list[tuple[object, object]]:
    return list(zip(log.user_ids[log.users], log.item_ids[log.items], strict=True))


def test_rows_are_put_in_time_order_and_equal_times_keep_file_order():
    log = from_arrays([7, 7, 3, 3], [1, 2, 5, 4], timestamps=[20, 10, 10, 5])
    assert triples(log) == [(3, 4), (7, 2), (3, 5), (7, 1)]
    assert log.timestamps.tolist() == [5, 10, 10, 20]


def test_integer_ids_sort_by_value_and_text_by_code_point():
    numbers = from_arrays(["10", "9"], ["007", "7"])
    assert numbers.user_ids.dtype == np.int64
    assert numbers.user_ids.tolist() == [9, 10]
    assert numbers.item_ids.tolist() == ["007", "7"]  # "007" is text, or it would merge with "7"
    mixed = from_arrays([10, "x"], ["é", "Z"])
    assert mixed.user_ids.tolist() == ["10", "x"]
    assert mixed.item_ids.tolist() == ["Z", "é"]


@pytest.mark.parametrize(("repeats", "kept"), [("first", [3.0, 1.0]), ("last", [1.0, 5.0])])
def test_repeated_pairs_keep_the_first_or_last_in_time(repeats, kept):
    log = from_arrays(
        [1, 1, 2], [9, 9, 9], ratings=[5, 3, 1], timestamps=[30, 10, 20], repeats=repeats
    )
    assert log.ratings.tolist() == kept
    assert (log.n_users, log.n_items, len(log)) == (2, 1, 2)


def test_unknown_treatment_of_repeats_is_refused():
    with pytest.raises(ConfigError, match="'mean'"):
        from_arrays([1], [1], repeats="mean")


def test_counts_and_compressed_rows():
    log = from_arrays(["b", "a", "b", "b"], [1, 2, 3, 2], timestamps=[4, 3, 2, 1])
    indptr, items = log.by_user()
    assert indptr.tolist() == [0, 1, 4]
    assert log.item_ids[items].tolist() == [2, 2, 3, 1]
    assert log.item_counts().tolist() == [1, 2, 1]


def test_the_log_is_immutable_and_leaves_the_callers_arrays_alone():
    codes = np.array([0, 1])
    log = Interactions(codes, codes, np.arange(2), np.arange(2))
    with pytest.raises(ValueError, match="read-only"):
        log.users[0] = 1
    codes[0] = 0
    with pytest.raises(AttributeError):
        log.name = "other"


def test_take_shares_id_maps_and_restores_time_order():
    log = from_arrays([1, 2, 3], [4, 5, 6], timestamps=[1, 2, 3])
    part = log.take([2, 0])
    assert triples(part) == [(1, 4), (3, 6)]
    assert part.n_users == 3
    assert triples(log.take(np.array([False, True, False]))) == [(2, 5)]


def test_fingerprint_depends_on_content_only():
    def log(**change):
        columns = {"users": [1, 2], "items": [3, 4], "timestamps": [1, 2], "name": "a"}
        return from_arrays(**(columns | change))

    same = log()
    assert len(same.fingerprint()) == 16
    assert log(name="b", timestamps=[1.0, 2.0]).fingerprint() == same.fingerprint()
    changes = ({"users": [1, 3]}, {"items": [4, 3]}, {"timestamps": [1, 3]}, {"timestamps": None})
    prints = {log(**change).fingerprint() for change in changes}
    assert len(prints | {same.fingerprint()}) == 5


def test_attributes_are_one_text_per_item():
    log = from_arrays(
        [1, 2, 3], [20, 10, 20], attributes={"genre": ["Drama", "Comedy", "War"], "year": [5, 6, 5]}
    )
    assert log.attributes["genre"].tolist() == ["Comedy", "Drama"]  # first seen
    assert log.attributes["year"].tolist() == ["6", "5"]


@pytest.mark.parametrize("library", [pd, pl])
def test_frames(library):
    frame = library.DataFrame(
        {"who": ["x", "y", "x"], "what": [3, 1, 1], "stars": [1.5, 2, 3], "when": [3, 2, 1]}
    )
    log = from_frame(frame, user="who", item="what", rating="stars", timestamp="when")
    assert triples(log) == [("x", 1), ("y", 1), ("x", 3)]
    assert log.ratings.tolist() == [3, 2, 1.5]
    assert log.timestamps.dtype == np.int64


@pytest.mark.parametrize("library", [pd, pl])
def test_dates_in_frames_become_seconds(library):
    days = [dt.datetime(1970, 1, 2), dt.datetime(1970, 1, 1, 0, 0, 1)]
    frame = library.DataFrame({"user": [1, 2], "item": [1, 2], "when": days})
    assert from_frame(frame, timestamp="when").timestamps.tolist() == [1, 86400]
    aware = [day.replace(tzinfo=dt.UTC) for day in days]
    zoned = library.DataFrame({"user": [1, 2], "item": [1, 2], "when": aware})
    assert from_frame(zoned, timestamp="when").timestamps.tolist() == [1, 86400]


def test_float_ids_of_a_frame_are_integers_again():
    log = from_arrays(np.array([2.0, 1.0]), np.array([0.5, 1.0]))
    assert log.user_ids.tolist() == [1, 2]
    assert log.item_ids.tolist() == ["0.5", "1.0"]


def test_without_timestamps_row_order_is_time_order_and_a_warning_says_so():
    frame = pl.DataFrame({"user": [2, 1], "item": [1, 2]})
    with pytest.warns(NoTimestampsWarning, match="rows are assumed to be in the order of time"):
        log = from_frame(frame)
    assert triples(log) == [(2, 1), (1, 2)]


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"users": [1, None]}, "row 2: user is missing"),
        ({"users": np.array([1, np.nan])}, "row 2: user is missing"),
        ({"users": pd.array([1, None], dtype="Int64")}, "row 2: user is missing"),
        ({"items": ["", "a"]}, "row 1: item is missing"),
        ({"items": [True, False]}, "item True is of type bool"),
        ({"items": ["\ud800", "a"]}, "not valid Unicode"),
        ({"users": [1]}, "item has 2 rows, user has 1"),
        ({"users": 1}, "user is not one column"),
        ({"ratings": [[1, 2], [3, 4]]}, "rating is not one column"),
        ({"users": [], "items": []}, "there are no interactions"),
        ({"ratings": [1, np.inf]}, "row 2: rating inf is not finite"),
        ({"ratings": [None, "good"]}, "row 2: rating 'good' is not a number"),
        ({"timestamps": ["1", "soon"]}, "row 2: timestamp 'soon' is not a number"),
        ({"timestamps": np.array(["2020", "NaT"], "datetime64[D]")}, "row 2: timestamp is missing"),
    ],
)
def test_faults_name_the_row(columns, fault):
    with pytest.raises(DataError, match=fault):
        from_arrays(**({"users": [1, 2], "items": [3, 4]} | columns))


@pytest.mark.parametrize(
    "ratings",
    [
        [3, None, 1.5, None],
        [3, "", "1.5", " "],
        ["3", "NaN", "1.5", ""],
        np.array([3, np.nan, 1.5, np.nan]),
        pl.Series(["3", None, "1.5", " nan"]),
        pl.Series([3.0, None, 1.5, None]),
        pd.array([3, None, 1.5, None], dtype="Float64"),
    ],
)
def test_missing_ratings_are_counted_and_said_once(ratings):
    with pytest.warns(MissingValuesWarning) as said:
        log = from_arrays([1, 2, 1, 2], [1, 2, 3, 4], ratings=ratings)
    assert [str(one.message) for one in said] == [
        "the data: 2 ratings are missing of 4: these rows count as interactions without a rating"
    ]
    np.testing.assert_array_equal(log.ratings, [3, np.nan, 1.5, np.nan])
    assert triples(log.rated()) == [(1, 1), (1, 3)]
    assert log.fingerprint() != from_arrays([1, 2, 1, 2], [1, 2, 3, 4]).fingerprint()


def test_a_log_without_any_rating_has_none():
    with pytest.warns(MissingValuesWarning, match="the data: 1 rating is missing of 1: "):
        log = from_arrays([1], [1], ratings=[None])
    assert log.ratings is None
    assert len(log.rated()) == 0


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["Drama", None, "War", ""], ["Drama", "War", ""]),  # item 2 has its value in row 3
        (pl.Series(["Drama", "", "War", None]), ["Drama", "War", ""]),
        (np.array([5, np.nan, 6, np.nan]), ["5", "6", ""]),  # of integers with gaps
        (np.array([5.5, np.nan, 6, np.nan]), ["5.5", "6.0", ""]),
    ],
)
def test_an_item_without_an_attribute_is_in_no_group(cells, found):
    with pytest.warns(MissingValuesWarning, match=r"^the data: 1 item has no kind of 3: ") as said:
        log = from_arrays([1, 2, 1, 2], [1, 2, 2, 3], attributes={"kind": cells})
    assert len(said) == 1
    assert log.attributes["kind"].tolist() == found
    groups = [attribute_group(log.attributes["kind"], [value]) for value in found[:2]]
    assert np.array(groups).tolist() == [[True, False, False], [False, True, False]]
    with pytest.raises(DataError, match="no item has the attribute value ''"):
        attribute_group(log.attributes["kind"], [""])


@pytest.mark.parametrize("repeats", ["first", "last"])
def test_merged_repeats_are_counted_and_said_once(repeats):
    frame = pl.DataFrame({"user": [1, 1, 2, 1, 2], "item": [7, 7, 7, 7, 8], "t": range(5)})
    with pytest.warns(RepeatsWarning) as said:
        log = from_frame(frame, timestamp="t", repeats=repeats)
    assert len(log) == 3
    assert [str(one.message) for one in said] == [
        "the frame: 2 rows repeat the user and item of another: "
        f"the {repeats} of each pair is kept, 3 rows of 5"
    ]


def test_a_frame_of_one_user_or_without_the_column_is_refused():
    with pytest.raises(DataError, match="all rows are of one user, 5"):
        from_frame(pl.DataFrame({"user": [5, 5], "item": [1, 2]}))
    with pytest.raises(DataError, match=r"no column 'user' \(the columns are who, item\)"):
        from_frame(pl.DataFrame({"who": [5, 6], "item": [1, 2]}))


ids = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
)


@settings(deadline=None)
@given(st.lists(st.tuples(ids, ids, st.integers(0, 5)), min_size=1, max_size=30))
def test_any_log_holds_its_invariants(rows):
    users, items, times = (list(column) for column in zip(*rows, strict=True))
    log = from_arrays(users, items, timestamps=times)
    expected = sorted({(str(u), str(i)) for u, i in zip(users, items, strict=True)})
    assert sorted((str(u), str(i)) for u, i in triples(log)) == expected
    assert np.all(np.diff(log.timestamps) >= 0)
    for known in (log.user_ids, log.item_ids):
        assert known.tolist() == sorted(set(known.tolist()))
    indptr, by_user = log.by_user()
    assert indptr[-1] == len(by_user) == len(log)
