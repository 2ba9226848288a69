"""Ties in time: how many rows are in one, and that a split leaves no meaning in their order."""

import warnings

import numpy as np
import pytest

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import EqualTimesWarning, Interactions
from fairhorizon.data.loading import load
from fairhorizon.data.splits import (
    Split,
    earlier_part,
    order_of_ties,
    shuffled_ties,
    split,
    split_by_time,
    tied_share,
    ties_note,
    with_ties,
)
from fairhorizon.errors import ConfigError

BASKETS = "synthetic-baskets:users=60,items=80,baskets_per_user=10"


def pair_of(n: int) -> Interactions:
    """n rows of two users, of which rows 2 and 3 are of one user at one time."""
    times = [0, 1, 2, 2, *range(4, n)]
    return from_arrays([0] * (n // 2) + [1] * (n - n // 2), range(n), timestamps=times, name="few")


def ascending(log: Interactions) -> float:
    """Of two rows in a row that are tied, the share that is sorted by item."""
    order = np.argsort(log.users, kind="stable")
    users, items, times = log.users[order], log.items[order], log.timestamps[order]
    same = (np.diff(times) == 0) & (np.diff(users) == 0)
    return float((np.diff(items)[same] > 0).mean())


def items_of(log: Interactions, user: int) -> list[int]:
    return log.items[log.users == user].tolist()


def rows_of(parts: Split) -> list[list[int]]:
    """The items of every user over all three parts, in order."""
    logs = (parts.train, parts.validation, parts.test)
    users = range(parts.train.n_users)
    return [[item for log in logs for item in items_of(log, user)] for user in users]


def test_the_share_of_tied_rows_by_hand():
    """User 1 has three rows at time 5 and one at 6; user 2 none twice; user 3 shares no user."""
    log = from_arrays([1, 2, 1, 1, 2, 1, 2, 3], range(8), timestamps=[5, 5, 5, 6, 7, 5, 6, 5])
    assert tied_share(log) == 3 / 8
    assert tied_share(from_arrays([1, 1], [1, 2])) == 0  # no times
    assert tied_share(log.take([])) == 0
    assert tied_share(from_arrays([1, 1, 2], range(3), timestamps=[4, 5, 5])) == 0  # another user
    assert tied_share(pair_of(10)) == 2 / 10
    assert tied_share(from_arrays([1, 1, 2, 2], range(4), timestamps=[0, 0, 0, 0])) == 1


@pytest.mark.parametrize(("n", "shuffles"), [(22, False), (20, False), (18, True)])
def test_above_a_tenth_ties_are_shuffled_and_only_then_something_is_said(n, shuffles):
    """2 of 22 rows are 9.1 %, 2 of 20 are just a tenth, 2 of 18 are 11.1 %."""
    log = pair_of(n)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        parts = split(log)
    assert rows_of(parts) == rows_of(split(log, ties=0 if shuffles else "keep"))
    assert [str(one.message) for one in said] == [
        "few: 11.1 % of the rows share user and time with another: their order is shuffled "
        "(seed 0); --keep-ties keeps that of the file"
    ] * shuffles
    assert [one.category for one in said] == [EqualTimesWarning] * shuffles
    assert all(one.filename == __file__ for one in said)


def test_what_is_asked_for_is_done_without_a_word():
    log = load(BASKETS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept, first, other = (split(log, ties=ties) for ties in ("keep", 0, 1))
    assert rows_of(kept) == [items_of(log, user) for user in range(60)]
    assert rows_of(first) == rows_of(split(log))
    assert rows_of(first) != rows_of(other)


def test_a_shuffled_order_is_another_and_every_users_times_ascend():
    log = load(BASKETS)
    once, again = shuffled_ties(log, 3), shuffled_ties(log, 3)
    assert once.fingerprint() == again.fingerprint() != log.fingerprint()
    assert np.array_equal(once.timestamps, log.timestamps)
    for user in range(60):
        before, after = items_of(log, user), items_of(once, user)
        assert sorted(before) == sorted(after)
        assert np.all(np.diff(once.timestamps[once.users == user]) >= 0)
    # every row has its time still
    rows = [set(zip(x.users, x.items, x.timestamps, strict=True)) for x in (log, once)]
    assert rows[0] == rows[1]


def test_the_order_is_that_of_a_draw_per_row():
    """As --shuffle-ties SEED always did: results of before stay what they were."""
    log = from_arrays([0] * 10, range(10), timestamps=[0] * 5 + [1] * 5)
    draws = np.random.default_rng(7).random(10)
    wanted = [*np.argsort(draws[:5]), *(5 + np.argsort(draws[5:]))]
    assert shuffled_ties(log, 7).items.tolist() == wanted


def test_a_split_does_not_sort_baskets_by_item():
    log = load(BASKETS)
    assert ascending(log) == 1
    for parts in (split(log), split_by_time(log)):
        assert ascending(parts.train) == pytest.approx(0.5, abs=0.05)
        assert ascending(parts.test) == pytest.approx(0.5, abs=0.1)
    for parts in (split(log, ties="keep"), split_by_time(log, ties="keep")):
        assert ascending(parts.train) == 1


def test_a_cut_in_time_has_the_same_rows_in_any_order():
    log = load(BASKETS)
    kept, shuffled = split_by_time(log, ties="keep"), split_by_time(log, ties=5)
    for part in ("train", "validation", "test"):
        one, two = getattr(kept, part), getattr(shuffled, part)
        assert sorted(zip(one.users, one.items, strict=True)) == sorted(
            zip(two.users, two.items, strict=True)
        )
        assert one.items.tolist() != two.items.tolist()


@pytest.mark.parametrize("ties", ["auto", "keep", 3])
def test_the_earlier_part_is_the_beginning_of_the_training_log_as_it_is(ties):
    """Shuffled a second time, it would not be what rankers see in the whole training log."""
    parts = split(load(BASKETS), ties=ties)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nor is anything said a second time
        inner = earlier_part(parts)
    for user in range(60):
        whole = items_of(parts.train, user)
        tested = len(whole) // 5
        assert items_of(inner.train, user) == whole[: len(whole) - tested - 1]
        assert items_of(inner.test, user) == whole[len(whole) - tested :]


@pytest.mark.parametrize("ties", ["file", -1, None, 1.5])
def test_another_order_is_refused(ties):
    with pytest.raises(ConfigError, match=r"ties must be 'auto', 'keep' or a seed"):
        with_ties(pair_of(10), ties)


def test_the_note_says_what_follows():
    assert ties_note(0.02) == (
        "2.0 % of the rows share user and time with another: they keep the order of the file; "
        "--shuffle-ties SEED shuffles them"
    )
    assert "75.8 % of the rows" in ties_note(0.758)
    assert "shuffled (seed 0); --keep-ties" in ties_note(0.758)


@pytest.mark.parametrize("n", [0, 1, 2, 5000])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_the_order_of_ties_is_that_of_a_lexical_sort(n: int, kind: type) -> None:
    drawing = np.random.default_rng(n)
    for times_there_are in (1, 3, 4000):
        times = np.sort(drawing.integers(times_there_are, size=n)).astype(kind)
        draws = drawing.random(n)
        assert (order_of_ties(times, draws) == np.lexsort((draws, times))).all()


def test_draws_that_differ_in_their_last_bit_are_told_apart() -> None:
    times = np.append(np.arange(5000), [5000] * 4)
    draws = np.append(np.full(5000, 0.5), 0.5 + np.array([3, 1, 2, 0]) * 2.0**-53)
    assert order_of_ties(times, draws)[-4:].tolist() == [5003, 5001, 5002, 5000]
