"""Weights of a log: quantities add up over repeats, and a split does not know later ones."""

import numpy as np
import polars as pl
import pytest

from fairhorizon.data.frames import from_frame
from fairhorizon.data.interactions import Interactions, RepeatsWarning
from fairhorizon.data.log_files import read_file, write_split
from fairhorizon.data.splits import (
    earlier_part,
    shuffled_ties,
    split,
    split_by_time,
    with_feedback,
)
from fairhorizon.errors import ConfigError, DataError

# a takes 1 (2 pieces), 2, again 1 (5), 3, 4, 5, again 2 (7), 6; b takes 1 (4), again 1 (6), 9
ROWS = [
    *(("a", 1, 2, 0), ("a", 2, 1, 1), ("a", 1, 5, 2), ("a", 3, 1, 3), ("a", 4, 1, 4)),
    *(("a", 5, 1, 5), ("a", 2, 7, 6), ("a", 6, 1, 7)),
    *(("b", 1, 4, 1), ("b", 1, 6, 2), ("b", 9, 1, 9)),
]
FRAME = pl.DataFrame(ROWS, schema=["user", "item", "quantity", "time"], orient="row")


def log_of(frame: pl.DataFrame = FRAME, **options: object) -> Interactions:
    given = {"timestamp": "time", "weight": "quantity", **options}
    return from_frame(frame, **given)  # type: ignore[arg-type]


def weights_of(log: Interactions) -> dict[tuple[str, int], float]:
    totals = log.total_weights()
    assert totals is not None
    users, items = log.user_ids[log.users], log.item_ids[log.items]
    return {(u, int(i)): w for u, i, w in zip(users, items, totals.tolist(), strict=True)}


@pytest.mark.parametrize("repeats", ["first", "last"])
def test_quantities_of_repeated_rows_add_up(repeats: str) -> None:
    log = log_of(repeats=repeats)
    assert len(log) == 8
    assert weights_of(log) == {
        **{("a", 1): 7, ("a", 2): 8, ("a", 3): 1, ("a", 4): 1, ("a", 5): 1, ("a", 6): 1},
        **{("b", 1): 10, ("b", 9): 1},
    }


def test_rows_as_weight_count_how_often() -> None:
    counts = weights_of(log_of(weight="rows"))
    assert counts["a", 1] == counts["a", 2] == counts["b", 1] == 2
    assert counts["a", 3] == 1
    named = log_of(FRAME.rename({"quantity": "rows"}), weight="rows")
    assert weights_of(named)["a", 1] == 7  # a column that is called so comes first


def test_without_weights_repeats_are_dropped_and_a_note_says_so() -> None:
    with pytest.warns(RepeatsWarning, match="3 rows repeat the user and item of another"):
        log = log_of(weight=None)
    assert (log.weights, log.repeated, log.total_weights()) == (None, None, None)
    assert log.fingerprint() != log_of().fingerprint()


def test_a_split_does_not_know_what_was_bought_later() -> None:
    # of a's six items one is for test, 6, and one for validation, 5: item 2 is bought again after 5
    train = split(log_of()).train
    assert weights_of(train) == {("a", 1): 7, ("a", 2): 1, ("a", 3): 1, ("a", 4): 1, ("b", 1): 10}
    # of the four left, none is for test and the last for validation; all comes before it
    assert weights_of(earlier_part(split(log_of())).train)["a", 1] == 7


def test_a_cut_in_time_does_not_know_what_was_bought_later() -> None:
    # of the times 0 1 1 3 4 5 7 9, the last five and then one more are held out: the cut is at 1
    early = split_by_time(log_of(), test_share=0.65, validation_share=0.13).train
    assert weights_of(early) == {("a", 1): 2}
    # at 3: both have bought item 1 again by then; b's next item is much later
    later = split_by_time(log_of(), test_share=0.5, validation_share=0.13).train
    assert weights_of(later) == {("a", 1): 7, ("a", 2): 1, ("b", 1): 10}
    late = [*ROWS, ("b", 1, 50, 8)]
    frame = pl.DataFrame(late, schema=FRAME.schema, orient="row")
    again = split_by_time(log_of(frame), test_share=0.5, validation_share=0.13).train
    assert weights_of(again) == weights_of(later)


def test_ties_that_are_shuffled_keep_their_weights() -> None:
    frame = FRAME.with_columns(time=pl.lit(5))
    assert weights_of(shuffled_ties(log_of(frame), seed=3)) == weights_of(log_of(frame))


def test_the_order_of_a_log_without_times_is_enough() -> None:
    with pytest.warns(UserWarning, match="no timestamps"):
        log = log_of(timestamp=None)
    assert weights_of(split(log).train)["a", 2] == 1


def test_feedback_has_the_median_weight() -> None:
    parts = split(log_of())
    longer = with_feedback(parts, np.array([1]), np.array([1])).train
    assert longer.weights is not None
    assert longer.weights[-1] == 1
    assert weights_of(longer)["b", 1] == 10


def test_a_written_split_has_the_weights(tmp_path) -> None:  # type: ignore[no-untyped-def]
    write_split(split(log_of()), tmp_path / "parts")
    back = read_file(tmp_path / "parts" / "train.csv", weight="weight")
    assert weights_of(back) == weights_of(split(log_of()).train)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("quantity", -1, "row 1: quantity -1 is negative .*returned"),
        ("quantity", None, "row 1: quantity is missing"),
        ("price", 1, "there is no column 'price'"),
    ],
)
def test_what_is_no_weight(column: str, value: float | None, message: str) -> None:
    frame = FRAME.with_columns(quantity=pl.Series([value, *FRAME["quantity"][1:]]))
    with pytest.raises(DataError, match=message):
        log_of(frame, weight=column)


def test_all_weights_zero() -> None:
    with pytest.raises(DataError, match="quantity is 0 everywhere"):
        log_of(FRAME.with_columns(quantity=0))


def test_a_session_is_read_as_a_user(tmp_path) -> None:  # type: ignore[no-untyped-def]
    FRAME.rename({"user": "visit"}).write_csv(tmp_path / "log.csv")
    log = read_file(tmp_path / "log.csv", session="visit", weight="quantity")
    assert log.user_ids.tolist() == ["a", "b"]
    assert weights_of(log) == weights_of(log_of())
    with pytest.raises(ConfigError, match=r"user 'item' and session 'visit': who is served\?"):
        read_file(tmp_path / "log.csv", session="visit", user="item")
