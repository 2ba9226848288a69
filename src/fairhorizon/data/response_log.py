"""A record of responses: who was shown what and when, and whether they liked it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.columns import Origin, as_column, encode, known_codes, to_numbers, to_times
from fairhorizon.data.frames import as_frame, in_polars
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.tables import Table, log_columns, read_table
from fairhorizon.errors import ConfigError, DataError

LIKED = "liked"
DAY = 86_400.0  # seconds


@dataclass(frozen=True, eq=False)
class ResponseLog:
    """Responses to showings, sorted by user and then by time. Users have codes of this record.

    An item that the log does not have is -1: the response still counts for whether the user stays.
    """

    ids: list[str]  # (b,) of the users
    users: NDArray[np.int64]  # (n,) ascending
    items: NDArray[np.int64]  # (n,) codes of the log
    times: NDArray[np.float64]  # (n,) seconds
    liked: NDArray[np.bool_]  # (n,)

    def __len__(self) -> int:
        return len(self.users)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(b,) the number of showings of each user."""
        return np.bincount(self.users, minlength=len(self.ids))

    @property
    def started(self) -> NDArray[np.float64]:
        """(b,) the time of each user's first showing."""
        first: NDArray[np.float64] = self.times[np.cumsum(self.counts) - self.counts]
        return first

    @property
    def ended(self) -> NDArray[np.float64]:
        """(b,) the time of each user's last showing."""
        last: NDArray[np.float64] = self.times[np.cumsum(self.counts) - 1]
        return last

    @property
    def until(self) -> float:
        """The time of the last showing of all."""
        return float(self.times.max())

    def left(self, days: float) -> NDArray[np.bool_]:
        """(b,) bool: users who were shown nothing in the last `days` of the record.

        A user who was away for longer and came back has not left. Nor have those who are there at
        the end, as nothing is known of them after it.
        """
        return self.until - self.ended > days * DAY

    def check(self, days: float) -> None:
        """Refuse a record that nothing can be learned from.

        days: without a showing at the end of the record, after which a user has left.
        """
        span = (self.until - float(self.times.min())) / DAY
        if span <= days:
            raise ConfigError(
                f"the answers are of {span:.3g} days: nobody can be seen to be away for "
                f"{days:g} (give a longer record, or fewer days: --away)"
            )
        for there, what in ((self.liked.any(), "liked"), (not self.liked.all(), "not liked")):
            if not there:
                raise DataError(
                    f"nothing in the answers was {what}", remedy="give all showings, liked or not"
                )


def load_responses(source: Any, log: Interactions) -> ResponseLog:
    """Read responses from a frame or a file with a row per showing.

    source: has the columns user, item, time and liked (1 or 0); others are not looked at. Rows of
        one time are in the order of the file.
    log: whose items the record is about.
    """
    if isinstance(source, str | Path):
        table = read_table(source, names=[LIKED])
    else:
        table = Table(in_polars(as_frame(source)), Origin(), header=True)
    found = log_columns(table)
    frame, origin = table.frame, table.origin
    there = ", ".join(map(repr, frame.columns))
    if LIKED not in frame.columns:
        origin.fail(
            f"no column is called {LIKED!r}",
            remedy=f"it says 1 where the user liked what was shown, else 0; there are {there}",
        )
    if (moment := found["timestamp"]) is None:
        origin.fail("no column looks like the time", remedy=f"call it time; there are {there}")
    if not len(frame):
        origin.fail("there are no answers", remedy="give a row per showing")
    ids, users = encode(as_column(frame[str(found["user"])]), str(found["user"]), origin)
    items = _known(table, str(found["item"]), log)
    times = to_times(as_column(frame[moment]), moment, origin).astype(np.float64)
    liked = _flags(table)
    # A stable sort: rows of one user and time stay in the order of the file.
    order = np.lexsort((times, users))
    texts = [str(one) for one in ids.tolist()]
    return ResponseLog(texts, users[order], items[order], times[order], liked[order])


def _known(table: Table, column: str, log: Interactions) -> NDArray[np.int64]:
    """(n,) the code of each row's item, -1 for an item that the log does not have."""
    cells = as_column(table.frame[column])
    codes = known_codes(cells, column, log.item_ids, table.origin)
    if (codes < 0).all():
        table.origin.fail(
            f"no {column} is an item of {log.name or 'the log'}",
            remedy=f"give the ids of the log; here is {table.frame[column][0]!r}",
        )
    return codes


def _flags(table: Table) -> NDArray[np.bool_]:
    """(n,) whether each showing was liked."""
    cells = as_column(table.frame[LIKED])
    if isinstance(cells, np.ndarray) and cells.dtype == np.bool_:
        return cells
    numbers = to_numbers(cells, LIKED, table.origin)
    wrong = ~np.isin(numbers, (0.0, 1.0))
    if wrong.any():
        row = int(wrong.argmax())
        table.origin.fail(f"{LIKED} {numbers[row]:g} is neither 0 nor 1", row, "give 1 for a like")
    liked: NDArray[np.bool_] = numbers == 1.0
    return liked
