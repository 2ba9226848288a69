"""A column of times: seconds as numbers, dates of any library, or ISO text."""

from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.columns import (
    MISSING,
    Column,
    Origin,
    each_number,
    finite_numbers,
    number_of,
    to_text,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AS_NUMBER = "seconds as a number, or an ISO date such as 2024-05-31 or 2024-05-31T12:00:00Z"
# What is converted at once: dates, and moments in UTC, of years whose microseconds are exact in
# float64. Other ISO text is converted one by one.
YEAR = r"(?:1[7-9]|2[01])\d\d"
CLOCK = r"[T ]\d\d:\d\d:[0-5]\d(?:\.\d{3}|\.\d{6})?(?:Z|\+00:00)?"
REGULAR = rf"^{YEAR}-\d\d-\d\d(?:{CLOCK})?$"


def to_times(values: Column, column: str, origin: Origin) -> NDArray[Any]:
    """int64 if every time is a whole number, else float64; dates as seconds since 1970 UTC."""
    if isinstance(values, pl.Series):
        cells = to_text(values, column, origin)
        first = cells[0].strip()
        if number_of(first) is None and _seconds(first) is not None:
            return _of_texts(cells, column, origin)
    elif values.dtype.kind == "M":
        missing = np.isnat(values)
        if missing.any():
            origin.fail(f"{column} is missing", int(missing.argmax()), MISSING)
        micros: NDArray[np.float64] = values.astype("datetime64[us]").astype(np.float64)
        return micros / 1e6
    elif values.dtype.kind in "OU" and len(values):
        if isinstance(values[0], str):
            return to_times(to_text(values, column, origin), column, origin)
        if isinstance(values[0], date):
            return each_number(values.tolist(), _seconds, column, origin, AS_NUMBER)
    return finite_numbers(values, column, origin, remedy=AS_NUMBER)


def _of_texts(cells: pl.Series, column: str, origin: Origin) -> NDArray[np.float64]:
    """Seconds of ISO texts."""
    clock = cells.str.slice(11, 8)
    clock = clock.zip_with(clock != "", pl.Series(["00:00:00"]))
    moments = (cells.str.slice(0, 10) + "T" + clock).str.to_datetime(
        "%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False
    )
    fraction = cells.str.extract(r"\.(\d+)").fill_null("").str.pad_end(6, "0")
    micros = moments.to_physical() + fraction.cast(pl.Int64, strict=False)
    seconds = micros.cast(pl.Float64).to_numpy() / 1e6  # NaN where it failed
    odd = np.flatnonzero(np.isnan(seconds) | ~cells.str.contains(REGULAR).to_numpy())
    for row, cell in zip(odd.tolist(), cells.gather(odd).to_list(), strict=True):
        found = _seconds(cell)
        if found is None:
            origin.fail(f"{column} {cell!r} is not a number", row, AS_NUMBER)
        seconds[row] = found
    return seconds


def _seconds(cell: Any) -> float | None:
    """Seconds since 1970 of a date, a date-time or its ISO text; without time zone it is UTC."""
    try:
        moment = datetime.fromisoformat(cell.strip()) if isinstance(cell, str) else cell
        if isinstance(moment, date) and not isinstance(moment, datetime):
            moment = datetime.combine(moment, time())
        if not isinstance(moment, datetime):
            return None
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (aware - EPOCH).total_seconds()
    except (ValueError, OverflowError):
        return None
