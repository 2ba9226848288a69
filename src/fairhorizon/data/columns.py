"""From raw columns to arrays: ids to codes, text to numbers and times. Errors name the row."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fairhorizon.errors import DataError

MISSING = "fill the cell or drop the row"


@dataclass(frozen=True)
class Origin:
    """Where rows came from: the file, and the line of every row of a text file."""

    file: str | Path | None = None
    first_line: int | None = None  # line of row 0, when every row is one line
    lines: NDArray[np.int64] | None = None  # line of each row, otherwise
    rows: NDArray[np.int64] | None = None  # which rows these are, where some were left out

    def of_rows(self, rows: NDArray[np.int64]) -> "Origin":
        """The origin of the rows with these indices."""
        return Origin(self.file, self.first_line, self.lines, rows)

    def fail(self, fault: str, row: int | None = None, remedy: str = "") -> NoReturn:
        """Raise a DataError with the file and the line, or the row where there are no lines."""
        line = None
        if row is not None:
            row = row if self.rows is None else int(self.rows[row])
            if self.lines is not None:
                line = int(self.lines[row])
            elif self.first_line is not None:
                line = self.first_line + row
            else:
                fault = f"row {row + 1}: {fault}"
        raise DataError(fault, file=self.file, line=line, remedy=remedy)


Column = NDArray[Any] | pl.Series


def has_value(column: Column) -> NDArray[np.bool_]:
    """(n,) bool: cells that are neither null nor NaN nor empty text."""
    if isinstance(column, pl.Series):
        return (column.is_not_null() & (column != "")).fill_null(value=False).to_numpy()
    if column.dtype.kind == "O":
        return np.array([not is_missing(cell) for cell in column.tolist()], dtype=np.bool_)
    # NaN and NaT are not equal to themselves.
    return np.asarray(column != "" if column.dtype.kind == "U" else column == column)


def as_column(values: ArrayLike | pl.Series) -> Column:
    """A column of text as a polars series, which is fast; any other as a numpy array."""
    if isinstance(values, pl.Series):
        if isinstance(values.dtype, pl.Categorical | pl.Enum):
            values = values.cast(pl.String)
        return values if values.dtype == pl.String else values.to_numpy()
    array = np.asarray(values)
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        # numpy would make text of the integer in [1, "a"].
        array = np.asarray(values, dtype=object)
    return array


def encode(
    values: Column, column: str, origin: Origin
) -> tuple[NDArray[Any], NDArray[np.int64]]:  # ids (n_ids,), codes (n,)
    """The distinct ids in sorted order, and for each row the position of its id among them.

    Ids are int64 if all are integers (text such as "007" is not), else text.
    """
    ids, codes = encoded(values, column, origin)
    return id_array(ids), codes


def encoded(
    values: Column, column: str, origin: Origin
) -> tuple[pl.Series, NDArray[np.int64]]:  # ids (n_ids,), codes (n,)
    """As `encode`, with ids as a polars column."""
    plain = _integers_or_text(values, column, origin)
    ids = plain.unique().sort()
    return ids, codes_among(plain, ids)


def codes_among(ids: pl.Series, known: pl.Series) -> NDArray[np.int64]:
    """(n,) the position of each id among known ones, which are sorted and of the same type."""
    # An Enum looks up text by hash: much faster than a search among a million sorted texts.
    if known.dtype == pl.String:
        found = ids.cast(pl.Enum(known)).to_physical().to_numpy()
    else:
        found = np.searchsorted(known.to_numpy(), ids.to_numpy())
    return np.asarray(found, dtype=np.int64)


def known_codes(
    values: Column, column: str, ids: NDArray[Any], origin: Origin
) -> NDArray[np.int64]:
    """(n,) the position of each row's id among `ids`, -1 if unknown; 7 and "7" are the same id."""
    distinct, positions = encode(values, column, origin)
    # Only distinct ids are looked up in Python; the rows follow by their positions.
    code_of = {str(known): code for code, known in enumerate(ids.tolist())}
    codes = [code_of.get(str(one), -1) for one in distinct.tolist()]
    return np.array(codes, dtype=np.int64)[positions]


def id_array(ids: pl.Series) -> NDArray[Any]:
    """Ids as a log holds them: int64, or an object array of text."""
    return np.array(ids.to_list(), dtype=object) if ids.dtype == pl.String else ids.to_numpy()


def _integers_or_text(values: Column, column: str, origin: Origin) -> pl.Series:
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "f":
            values = _whole(values, column, origin)
        if values.dtype.kind in "iu" and np.all(values <= np.iinfo(np.int64).max):
            return pl.Series(values.astype(np.int64, copy=False))
    text = to_text(values, column, origin)
    # The first cell mostly tells that ids are text, which saves the cast of a whole column.
    numbers = None if _integers(text[:1]) is None else _integers(text)
    return text if numbers is None else numbers


def _integers(text: pl.Series) -> pl.Series | None:
    """The integers that the texts spell; None if one is no plain integer, such as "007"."""
    numbers = text.cast(pl.Int64, strict=False)
    same = numbers.null_count() == 0 and (numbers.cast(pl.String) == text).all()
    return numbers if same else None


def _whole(values: NDArray[Any], column: str, origin: Origin) -> NDArray[Any]:
    """Float ids as integers, which frames with missing cells turn into floats; else as text."""
    _refuse_non_finite(values, column, origin)
    # From 2**53 on floats skip integers, so that two ids might have become one.
    if np.all(values == np.round(values)) and np.all(np.abs(values) < 2**53):
        return values.astype(np.int64)
    return np.array([str(value) for value in values.tolist()], dtype=object)


def to_text(values: Column, column: str, origin: Origin) -> pl.Series:
    """The column as text; a DataError names the first cell that is missing or empty."""
    if isinstance(values, pl.Series):
        text = values
    else:
        cells = values.tolist()
        for row, cell in enumerate(cells):
            if type(cell) is str:
                continue
            if type(cell) is not int:
                if is_missing(cell):
                    origin.fail(f"{column} is missing", row, MISSING)
                kind = type(cell).__name__
                origin.fail(
                    f"{column} {cell!r} is of type {kind}", row, "give integers or plain text"
                )
            cells[row] = str(cell)
        try:
            text = pl.Series(cells, dtype=pl.String)
        except UnicodeEncodeError:
            origin.fail(
                f"{column} contains text that is not valid Unicode", remedy="clean the text"
            )
    empty = (text.is_null() | (text == "")).to_numpy()
    if empty.any():
        origin.fail(f"{column} is missing", int(empty.argmax()), MISSING)
    return text


def to_ratings(values: Column, column: str, origin: Origin) -> NDArray[np.float64]:
    """(n,) finite numbers, NaN where a cell is missing or empty."""
    if isinstance(values, pl.Series):
        text = values.str.strip_chars()
        empty = text.is_null() | text.str.to_lowercase().is_in(["", "nan"])
        missing = empty.to_numpy()
        # Missing cells become 0 for the conversion, whose errors are about other cells, and NaN
        # after it.
        filled: Column = values.zip_with(~empty, pl.Series(["0"]))
    elif values.dtype.kind == "f":
        missing = np.isnan(values)
        filled = np.where(missing, 0, values)
    else:
        cells = values.astype(object)
        missing = np.array([_is_no_rating(cell) for cell in cells.tolist()], dtype=np.bool_)
        cells[missing] = "0"
        filled = cells if missing.any() else values
    ratings = to_numbers(filled, column, origin)
    ratings[missing] = np.nan
    return ratings


def _is_no_rating(cell: Any) -> bool:
    return is_missing(cell) or (isinstance(cell, str) and cell.strip().lower() in ("", "nan"))


def to_numbers(values: Column, column: str, origin: Origin) -> NDArray[np.float64]:
    """(n,) finite numbers."""
    return finite_numbers(values, column, origin, remedy="give a number").astype(np.float64)


def to_weights(values: Column, column: str, origin: Origin) -> NDArray[np.float64]:
    """(n,) finite numbers from 0 on."""
    weights = to_numbers(values, column, origin)
    below = weights < 0
    if below.any():
        row = int(below.argmax())
        remedy = "weights are from 0 on; drop rows of goods that were returned"
        origin.fail(f"{column} {weights[row]:g} is negative", row, remedy)
    return weights


def refuse_zeros(weights: NDArray[np.float64], column: str, origin: Origin) -> None:
    """Refuse weights that are all 0: the column is probably the wrong one."""
    if not weights.any():
        origin.fail(f"{column} is 0 everywhere", remedy="name another column, or none")


def finite_numbers(values: Column, column: str, origin: Origin, remedy: str) -> NDArray[Any]:
    """(n,) int64 if all numbers are whole, else finite float64."""
    if not isinstance(values, pl.Series) and values.dtype.kind in "iuf":
        _refuse_non_finite(values, column, origin)
        return values.astype(np.float64 if values.dtype.kind in "uf" else np.int64)
    if not isinstance(values, pl.Series) and not all(type(v) is str for v in values.tolist()):
        return each_number(values.tolist(), number_of, column, origin, remedy)
    text = to_text(values, column, origin).str.strip_chars()
    # Whole numbers stay integers: times in nanoseconds would lose digits as floats.
    whole = text.cast(pl.Int64, strict=False)
    if whole.null_count() == 0:
        return whole.to_numpy()
    numbers = text.cast(pl.Float64, strict=False)
    wrong = numbers.is_null().to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        origin.fail(f"{column} {text[row]!r} is not a number", row, remedy)
    found = numbers.to_numpy()
    _refuse_non_finite(found, column, origin)
    return found


def each_number(
    cells: list[Any],
    parse: Callable[[Any], float | None],
    column: str,
    origin: Origin,
    remedy: str,
) -> NDArray[np.float64]:
    """(n,) numbers of cells that a cast of the whole column cannot convert."""
    found = np.empty(len(cells))
    for row, cell in enumerate(cells):
        if is_missing(cell):
            origin.fail(f"{column} is missing", row, MISSING)
        number = parse(cell)
        if number is None:
            origin.fail(f"{column} {cell!r} is not a number", row, remedy)
        found[row] = number
    _refuse_non_finite(found, column, origin)
    return found


def number_of(cell: Any) -> float | None:
    """The value of a number or of its text; None if it is neither."""
    if not isinstance(cell, int | float | str | Decimal) or isinstance(cell, bool):
        return None
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return None


def is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN, NaT, pandas' NA or empty text, which no single test covers."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return cell != cell if isinstance(cell, float) else isinstance(cell, str) and cell == ""


def _refuse_non_finite(values: NDArray[Any], column: str, origin: Origin) -> None:
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(wrong.argmax())
        fault = "is missing (NaN)" if np.isnan(values[row]) else f"{values[row]} is not finite"
        origin.fail(f"{column} {fault}", row, MISSING)


# ---- Times: seconds as numbers, dates of any library, or ISO text --------------------------------
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AS_NUMBER = "seconds as a number, or an ISO date such as 2024-05-31 or 2024-05-31T12:00:00Z"
# ISO text that is converted a whole column at once: dates, and moments in UTC, of years whose
# microseconds are exact in float64. All other text is converted cell by cell.
YEAR = r"(?:1[7-9]|2[01])\d\d"
CLOCK = r"[T ]\d\d:\d\d:[0-5]\d(?:\.\d{3}|\.\d{6})?(?:Z|\+00:00)?"
REGULAR = rf"^{YEAR}-\d\d-\d\d(?:{CLOCK})?$"


def to_times(values: Column, column: str, origin: Origin) -> NDArray[Any]:
    """(n,) int64 if all times are whole numbers, else float64; dates as seconds since 1970 UTC."""
    if isinstance(values, pl.Series):
        cells = to_text(values, column, origin)
        # The first cell decides whether the column holds dates or numbers, as a date that is only
        # digits would read as either.
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
    """(n,) seconds since 1970 of ISO texts."""
    # Date, clock and fraction apart: polars would parse the whole text in one of these forms only.
    clock = cells.str.slice(11, 8)
    clock = clock.zip_with(clock != "", pl.Series(["00:00:00"]))
    moments = (cells.str.slice(0, 10) + "T" + clock).str.to_datetime(
        "%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False
    )
    fraction = cells.str.extract(r"\.(\d+)").fill_null("").str.pad_end(6, "0")
    micros = moments.to_physical() + fraction.cast(pl.Int64, strict=False)
    seconds = micros.cast(pl.Float64).to_numpy() / 1e6  # NaN where it failed
    # Other ISO forms and time zones, and what is wrong: cell by cell.
    odd = np.flatnonzero(np.isnan(seconds) | ~cells.str.contains(REGULAR).to_numpy())
    for row, cell in zip(odd.tolist(), cells.gather(odd).to_list(), strict=True):
        found = _seconds(cell)
        if found is None:
            origin.fail(f"{column} {cell!r} is not a number", row, AS_NUMBER)
        seconds[row] = found
    return seconds


def _seconds(cell: Any) -> float | None:
    """Seconds since 1970 of a date, a date-time or its ISO text; without a time zone it is UTC."""
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
