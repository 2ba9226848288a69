"""Chronological splits into training, validation and test, and the statistics of a log.

Several rows of one user at one time are a tie. Where there are many (ratings entered in one
sitting, baskets, times in days), their order in the file means nothing but is often regular, such
as sorted by item. A ranker would learn that order, so a split shuffles ties.
"""

import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import EqualTimesWarning, Interactions
from fairhorizon.errors import ConfigError, DataError, of_type

Ties = Literal["auto", "keep"] | int  # the order of ties; an integer: a seed to shuffle them with
MOST_TIED = 0.1  # with a larger share of tied rows, "auto" shuffles
AUTO_SEED = 0


@dataclass(frozen=True)
class Split:
    """Three parts of one log with the same id maps."""

    train: Interactions
    validation: Interactions
    test: Interactions

    @property
    def name(self) -> str:
        return self.train.name


@dataclass(frozen=True)
class Statistics:
    """The sizes of a log, as in the paper's table of data sets; density is a fraction."""

    users: int
    items: int
    interactions: int
    per_user: float
    per_item: float
    density: float


def statistics(log: Interactions) -> Statistics:
    """Sizes, means per user and per item, and density = interactions / (users * items)."""
    users, items, n = log.n_users, log.n_items, len(log)
    return Statistics(users, items, n, n / users, n / items, n / (users * items))


def tied_share(log: Interactions) -> float:
    """The share of rows that share user and time with another row, 0 to 1; 0 without times."""
    if log.timestamps is None or not len(log):
        return 0.0
    order = np.argsort(log.users, kind="stable")  # the log is in time order
    users, times = log.users[order], log.timestamps[order]
    as_before = np.append(False, (users[1:] == users[:-1]) & (times[1:] == times[:-1]))
    # A row is tied with the row before it or with the one after it.
    as_next = np.append(as_before[1:], False)
    return float((as_before | as_next).mean())


def shuffled_ties(log: Interactions, seed: int) -> Interactions:
    """The log with the rows of each time in random order; the times stay ascending."""
    if log.timestamps is None:
        return log
    draws = np.random.default_rng(seed).random(len(log))
    return log.take(order_of_ties(log.timestamps, draws))


def order_of_ties(times: NDArray[Any], draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """np.lexsort((draws, times)) where times ascend, by one sort of whole numbers: 16 times faster.

    draws: of 0 to 1, without the 1.
    """
    number = np.cumsum(np.append(False, times[1:] != times[:-1])[: len(times)])
    # The number of the time in the upper bits of a key, and its draw in those below.
    bits = min(53, 64 - int(number.max(initial=0)).bit_length())
    key = number.astype(np.uint64) << np.uint64(bits)
    key |= (draws * 2.0**bits).astype(np.uint64)
    order = np.argsort(key)
    ordered = key[order]
    # Two draws of one time that differ in bits for which there was no place.
    if (ordered[1:] == ordered[:-1]).any():
        return np.lexsort((draws, times))
    return order


def with_ties(log: Interactions, ties: Ties) -> Interactions:
    """The log with its ties in the order that `ties` asks for; warns if "auto" shuffles them."""
    if ties == "keep":
        return log
    if ties == "auto":
        share = tied_share(log)
        if share <= MOST_TIED:
            return log
        # The warning points at the caller of the split, two frames above.
        warnings.warn(
            f"{log.name or 'the log'}: {ties_note(share)}", EqualTimesWarning, stacklevel=3
        )
        return shuffled_ties(log, AUTO_SEED)
    if not isinstance(ties, int | np.integer) or ties < 0:
        raise ConfigError(f"ties must be 'auto', 'keep' or a seed (0, 1, ...), not {ties!r}")
    return shuffled_ties(log, ties)


def ties_note(share: float) -> str:
    """What "auto" does with a log of which this share is tied, in words."""
    found = f"{100 * share:.1f} % of the rows share user and time with another"
    if share > MOST_TIED:
        return (
            f"{found}: their order is shuffled (seed {AUTO_SEED}); --keep-ties keeps that of the "
            "file"
        )
    return f"{found}: they keep the order of the file; --shuffle-ties SEED shuffles them"


def split(log: Interactions, *, test_share: float = 0.2, ties: Ties = "auto") -> Split:
    """Training, validation and test items of each user, in time order.

    Of a user's n items the last floor(n * test_share) are test items, the one before them is the
    validation item, and the rest is for training.

    log: the whole log.
    test_share: the share of each user's items that is kept for the test.
    ties: the order of a user's interactions at one time. "keep": that of the log; an integer: the
        seed to shuffle them with; "auto": shuffled with seed 0 if more than a tenth of all rows are
        in a tie, and a warning says so, else as in the log.
    """
    share = _share("test_share", test_share)
    of_type(log, Interactions, "the log", "read it first: fh.split(fh.load(...))")
    log = with_ties(log, ties)
    counts = log.user_counts()
    # Counted from each user's end.
    left = counts[log.users] - _position_in_user(log)  # 1 for the last interaction of a user
    tested = (counts * share.numerator // share.denominator)[log.users]
    return Split(
        train=_as_known_then(log.take(left > tested + 1)),
        validation=log.take(left == tested + 1),
        test=log.take(left <= tested),
    )


def uncut(log: Interactions) -> Split:
    """The whole log as training log: nothing is held out."""
    nothing = log.take([])
    return Split(log, nothing, nothing)


def _as_known_then(part: Interactions) -> Interactions:
    """The first rows of every user, without the repeats that came after the last of them."""
    if part.repeated is None:
        return part
    return replace(part, repeated=part.repeated.until(part.user_counts()))


LATER = 5  # the last fifth of a training log is held out, as the last fifth of the log for the test


def earlier_part(parts: Split) -> Split:
    """A split of the training log into an earlier part and held-out validation and test items.

    Ties are in the order that the first split gave them: what is later stays later.
    """
    return split(parts.train, test_share=1 / LATER, ties="keep")


def _position_in_user(log: Interactions) -> NDArray[np.int64]:
    """(n,) the number of earlier rows of the same user."""
    order = np.argsort(log.users, kind="stable")
    starts = np.concatenate([[0], np.cumsum(log.user_counts())])
    position = np.empty(len(log), dtype=np.int64)
    position[order] = np.arange(len(log)) - starts[log.users[order]]
    return position


def split_by_time(
    log: Interactions,
    *,
    test_share: float = 0.2,
    validation_share: float = 0.1,
    ties: Ties = "auto",
) -> Split:
    """A split at two times for all users: no training row is later than a validation or test row.

    Interactions at one time stay together: those at a cut all go to the later part.

    log: the whole log.
    test_share, validation_share: about so much of all rows, the latest ones.
    ties: the order of a user's interactions at one time, as in `split`.
    """
    test = _share("test_share", test_share)
    validation = _share("validation_share", validation_share)
    if test + validation >= 1:
        raise ConfigError("test_share and validation_share must leave something to train on")
    log, n = with_ties(log, ties), len(log)
    times = np.arange(n) if log.timestamps is None else log.timestamps
    tested = n * test.numerator // test.denominator
    later = tested + n * validation.numerator // validation.denominator
    first, second = (
        # The first row of the time at the cut: rows of one time are not torn apart.
        int(np.searchsorted(times, times[n - size])) if size else n
        for size in (later, tested)
    )
    if first == 0:
        raise DataError(
            f"{log.name or 'the log'} cannot be split by time: nothing is earlier than the cut",
            remedy="set smaller shares, or split per user",
        )
    rows = np.arange(n)
    train = _as_known_then(log.take(rows[:first]))
    if train.repeated is not None and first < n:
        train = replace(train, repeated=train.repeated.before(times[first]))
    return Split(train, log.take(rows[first:second]), log.take(rows[second:]))


def with_feedback(parts: Split, users: NDArray[np.int64], items: NDArray[np.int64]) -> Split:
    """The split with later likes added at the end of the training log.

    users, items: (n,) codes of the likes, in the order in which they came. A pair that is in
        training or validation already is left out, and of the others each counts once.

    A like has no rating and no weight of its own: it gets the mean rating and the median weight of
    the training log.
    """
    train = parts.train
    if not len(train):
        raise DataError(
            f"{parts.name or 'the split'} has no training log to add feedback to",
            remedy="give more interactions",
        )
    pairs = users * train.n_items + items
    # Pairs of the test items are added: a user who likes one in the long run has taken it.
    known = [part.users * train.n_items + part.items for part in (train, parts.validation)]
    # Each pair at its first like, in the order in which they came.
    rows = np.sort(np.unique(pairs, return_index=True)[1])
    rows = rows[~np.isin(pairs[rows], np.concatenate(known))]
    ratings, times = train.ratings, train.timestamps
    if ratings is not None:
        known_ratings = ratings[~np.isnan(ratings)]
        mean = known_ratings.mean() if len(known_ratings) else np.nan
        ratings = np.append(ratings, np.full(len(rows), mean))
    if times is not None:
        # After everything in the log, one time unit apart, so that their order is kept.
        later = times[-1] + np.arange(1, len(rows) + 1)
        times = np.append(times, later.astype(times.dtype))
    weights = train.weights
    if weights is not None:
        weights = np.append(weights, np.full(len(rows), np.median(weights)))
    longer = replace(
        train,
        users=np.append(train.users, users[rows]),
        items=np.append(train.items, items[rows]),
        ratings=ratings,
        timestamps=times,
        weights=weights,
        last_times=None,
    )
    return replace(parts, train=longer)


def _share(name: str, value: float) -> Fraction:
    """The share as an exact fraction: with floats, 0.29 of 100 rows is 28."""
    if not 0 <= value < 1:
        raise ConfigError(f"{name} must be at least 0 and below 1, not {value}")
    return Fraction(value).limit_denominator(10**6)
