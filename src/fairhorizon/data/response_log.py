"""A record of answered showings: who was shown what when, and whether they liked it."""

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
    """Answered showings by user, those of a user in order of time; users by a code of this record.

    An item that the log does not have is -1: its answer still tells of the user's mood.
    """

    ids: list[str]  # (b,) of the users
    users: NDArray[np.int64]  # (n,) ascending
    items: NDArray[np.int64]  # (n,) codes of the log
    times: NDArray[np.float64]  # (n,)
    liked: NDArray[np.bool_]  # (n,)

    def __len__(self) -> int:
        return len(self.users)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(b,) showings of each user."""
        return np.bincount(self.users, minlength=len(self.ids))

    @property
    def begun(self) -> NDArray[np.float64]:
        """(b,) when each user was shown something for the first time."""
        first: NDArray[np.float64] = self.times[np.cumsum(self.counts) - self.counts]
        return first

    @property
    def ended(self) -> NDArray[np.float64]:
        """(b,) when each user was shown something for the last time."""
        last: NDArray[np.float64] = self.times[np.cumsum(self.counts) - 1]
        return last

    @property
    def until(self) -> float:
        """When anybody was shown something for the last time."""
        return float(self.times.max())

    def left(self, days: float) -> NDArray[np.bool_]:
        """(b,) who was shown nothing in the last `days` of the record, though others were.

        Whoever was away for longer and came back has not left. What becomes of those who are there
        at the end is not known: they have not left either.
        """
        return self.until - self.ended > days * DAY

    def check(self, days: float) -> None:
        """Refuse a record that nothing can be learned from, where who left was away for `days`."""
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
    """From a frame or a file with a row per showing: user, item, time, and liked, 1 or 0.

    Rows of one time are in the order of the file. Other columns are not looked at.
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
    order = np.lexsort((times, users))
    texts = [str(one) for one in ids.tolist()]
    return ResponseLog(texts, users[order], items[order], times[order], liked[order])


def _known(table: Table, column: str, log: Interactions) -> NDArray[np.int64]:
    """The code of each row's item, -1 for one that the log does not have."""
    cells = as_column(table.frame[column])
    codes = known_codes(cells, column, log.item_ids, table.origin)
    if (codes < 0).all():
        table.origin.fail(
            f"no {column} is an item of {log.name or 'the log'}",
            remedy=f"give the ids of the log; here is {table.frame[column][0]!r}",
        )
    return codes


def _flags(table: Table) -> NDArray[np.bool_]:
    """Whether each showing was liked."""
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
