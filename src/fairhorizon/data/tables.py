"""A text, Parquet or JSON lines file as a frame of columns, and which of them holds what.

Errors name the file and, of a text file, the line.
"""

import codecs
import csv
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.columns import Origin
from fairhorizon.errors import DataError, NoColumnError

# ---- The content of a file: its bytes, unpacked, and its text in any encoding --------------------
GZIP, ZIP = b"\x1f\x8b", (b"PK\x03\x04", b"PK\x05\x06")  # the second is a zip without files
UTF_8 = "utf-8"
# UTF-32 first: its mark begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
LISTED = 5  # of the files in an archive, those that a message lists


def read_content(path: Path) -> tuple[bytes, str]:
    """The bytes of a file and its suffix in lower case, those of the file inside an archive.

    gzip and zip are recognised by content; a zip must hold exactly one file.
    """
    if path.is_dir():
        raise DataError("is a folder, not a file", file=path, remedy="give a file inside it")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError("there is no such file", file=path, remedy="check the path") from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot be read: {error}", file=path, remedy="check the path and your permissions"
        ) from None
    try:
        if raw.startswith(GZIP):
            inner = path.stem if path.suffix.lower() in (".gz", ".gzip") else path.name
            return gzip.decompress(raw), Path(inner).suffix.lower()
        if raw.startswith(ZIP):
            return _only_member(raw, path)
    except (EOFError, OSError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(
            f"cannot be unpacked: {error}", file=path, remedy="pack it again, or give it unpacked"
        ) from None
    return raw, path.suffix.lower()


def _only_member(raw: bytes, path: Path) -> tuple[bytes, str]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        names = [
            entry.filename
            for entry in archive.infolist()
            if not entry.is_dir() and not entry.filename.startswith("__MACOSX/")
        ]
        if len(names) != 1:
            listed = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
            raise DataError(
                f"holds {len(names)} files" + (f": {listed}" if names else ""),
                file=path,
                remedy="unpack it and give one of them" if names else "give a zip with one file",
            )
        return archive.read(names[0]), Path(names[0]).suffix.lower()


def decode(raw: bytes, path: Path, encoding: str, option: str) -> str:
    """The text of the bytes; a byte order mark overrules the encoding.

    An error names the line of the first invalid byte, and `option`, which sets the encoding.
    """
    marked = next((name for mark, name in MARKS if raw.startswith(mark)), encoding)
    try:
        # An unknown encoding is refused even where a byte order mark makes it needless.
        "".encode(encoding)
        text = raw.decode(marked)
    except LookupError:
        raise DataError(
            f"unknown encoding {encoding!r}", file=path, remedy=f"try {option} latin-1"
        ) from None
    except UnicodeError as error:
        where = error.start if isinstance(error, UnicodeDecodeError) else 0
        raise DataError(
            f"is not {marked.removesuffix('-sig')} text",
            file=path,
            line=raw[:where].decode(marked, "replace").count("\n") + 1,
            remedy="a binary file cannot be read; if it is text, name its encoding, "
            f"e.g. {option} latin-1",
        ) from None
    if "\0" in text:
        raise DataError(
            "contains zero bytes, so it is a binary file",
            file=path,
            line=text.count("\n", 0, text.index("\0")) + 1,
            remedy="give CSV, TSV, .inter, u.data, ratings.dat or .parquet; if it is UTF-16 text, "
            f"give {option} utf-16",
        )
    return text


# ---- Parquet files, of which only the columns that are asked for are read ------------------------
SUFFIXES = (".parquet", ".pq")
MAGIC = b"PAR1"  # what a Parquet file begins with; one that is packed does not

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class ParquetColumns:
    """A Parquet file as a frame, each column of which is read when it is asked for."""

    path: Path
    columns: list[str]
    rows: int
    kept: NDArray[np.bool_] | None = None  # which rows of the file these are; None: all

    @classmethod
    def from_file(cls, path: Path) -> "ParquetColumns | None":
        """The columns of a file; None if its suffix is not Parquet's, or if it is packed."""
        try:
            with path.open("rb") as file:
                is_plain = path.suffix.lower() in SUFFIXES and file.read(len(MAGIC)) == MAGIC
        except (OSError, ValueError):
            return None
        if not is_plain:
            return None
        scan = _checked(path, lambda: pl.scan_parquet(path, glob=False))
        columns = _checked(path, lambda: scan.collect_schema().names())
        rows = _checked(path, lambda: int(scan.select(pl.len()).collect().item()))
        _refuse_empty(path, rows)
        return cls(path, columns, rows)

    @property
    def nothing(self) -> pl.DataFrame:
        """A frame with these columns and no rows."""
        return pl.DataFrame({name: [] for name in self.columns})

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, name: str | Sequence[str]) -> "pl.Series | Self":
        """One column; for several names the file itself, as they are read one by one."""
        if not isinstance(name, str):
            return self
        scan = pl.scan_parquet(self.path, glob=False)
        column = _checked(self.path, lambda: scan.select(pl.col(name)).collect().to_series())
        return column if self.kept is None else column.filter(self.kept)

    def filter(self, kept: NDArray[np.bool_]) -> "ParquetColumns":
        """The same columns with those rows where `kept` (rows,) is true."""
        return replace(self, rows=int(kept.sum()), kept=kept)


def parquet_frame(path: Path, raw: bytes) -> pl.DataFrame:
    """A frame from the unpacked bytes of a Parquet file."""
    frame = _checked(path, lambda: pl.read_parquet(io.BytesIO(raw)))
    _refuse_empty(path, len(frame))
    return frame


def _checked(path: Path, read: Callable[[], Found]) -> Found:
    try:
        return read()
    # A damaged file can make polars panic, which is no subclass of its errors.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError):
        raise DataError(
            "is not a Parquet file or is damaged", file=path, remedy="write the file again"
        ) from None


def _refuse_empty(path: Path, rows: int) -> None:
    if not rows:
        raise DataError("there are no rows", file=path, remedy="give rows of user and item")


# ---- Text files and JSON lines -------------------------------------------------------------------
SEPARATORS = ("\t", "::", ",", ";", "|")
OF_RECBOLE = (".inter", ".item", ".user")
OF_SUFFIX = {".csv": ",", ".tsv": "\t", ".data": "\t", ".dat": "::"}
OF_SUFFIX |= dict.fromkeys(OF_RECBOLE, "\t")
HEAD, HEAD_LINES = 100_000, 100  # the head of a text: so many characters, and lines of these
UNIT = "\x1f"  # ASCII unit separator, stands in for separators of several characters
TYPED = re.compile(r"(.+):(?:token|float)(?:_seq)?")  # RecBole: user_id:token


@dataclass(frozen=True)
class Table:
    """Text columns of a text file, typed columns of a Parquet file or of JSON lines."""

    frame: pl.DataFrame
    origin: Origin
    header: bool  # without a header the columns are called "0", "1", "2", ...


def read_table(
    path: str | Path,
    *,
    names: Collection[str] = (),
    header: bool | None = None,
    separator: str | None = None,
    encoding: str = UTF_8,
    option: str = "",
    head: bool = False,
) -> Table:
    """Read any supported file, also inside gzip or zip.

    names: columns by which a header is recognised.
    header: whether the first line has names; None: detected.
    separator: of cells; None: detected.
    encoding: of a text file.
    option: the prefix of option names in messages, such as "list-".
    head: read some of the first rows only.
    """
    path = Path(path)
    raw, suffix = read_content(path)
    if suffix in SUFFIXES:
        return Table(parquet_frame(path, raw), Origin(path), header=True)
    text = decode(raw, path, encoding, option=f"--{option}encoding").rstrip("\r\n")
    # Else a large log is in memory twice.
    del raw
    if head:
        text = _first_lines(text)
    if suffix in (".jsonl", ".ndjson"):
        return _json_lines(path, text)
    if not text.strip():
        raise DataError("the file is empty", file=path, remedy="give rows of user and item")
    first = text.lstrip("\r\n").split("\n", 1)[0]
    chosen = separator or _separator(first, suffix)
    # MovieLens' and RecBole's formats have no quotes: there a quotation mark is part of the text.
    quoted = '"' in text and chosen != "::" and suffix not in OF_RECBOLE
    # polars and csv take separators of one character only.
    if len(chosen) > 1:
        text, chosen = text.replace(chosen, UNIT), UNIT
    return _text_table(text, path, chosen, quoted, header, names)


def _first_lines(text: str) -> str:
    """The first lines of a text; the whole text if a quoted cell goes on after them."""
    first = "\n".join(text[:HEAD].split("\n")[:HEAD_LINES]) if len(text) > HEAD else text
    return text if first.count('"') % 2 else first


def _json_lines(path: Path, text: str) -> Table:
    """A JSON object per line, all with the same keys; blank lines are left out."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    remedy = 'give {"user": ..., "item": ...} per line'
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or (rows and row.keys() != rows[0].keys()):
            fault = "has other keys than the first line" if isinstance(row, dict) else "is no JSON"
            raise DataError(fault, file=path, line=number, remedy=remedy)
        rows.append(row)
        lines.append(number)
    if not rows:
        raise DataError("the file is empty", file=path, remedy="give rows of user and item")
    try:
        frame = pl.DataFrame(rows, infer_schema_length=None)
    except (pl.exceptions.PolarsError, TypeError, ValueError):
        raise DataError(
            "a key has values of several types", file=path, remedy="give text or numbers alone"
        ) from None
    return Table(frame, Origin(path, lines=np.array(lines)), header=True)


def _separator(first: str, suffix: str) -> str:
    """The usual separator of the suffix if the first line has it, else the first one it has."""
    usual = OF_SUFFIX.get(suffix, ",")
    return next((one for one in (usual, *SEPARATORS) if one in first), usual)


def _text_table(
    text: str,
    path: Path,
    separator: str,
    quoted: bool,
    header: bool | None,
    names: Collection[str],
) -> Table:
    # A fast reader for files as they mostly are; what it does not take is read row by row.
    plain = "\r" not in text.replace("\r\n", "\n") and separator not in '\r\n "'
    bulk = _bulk(text, separator, quoted) if plain else None
    rows, lines = (bulk, None) if bulk is not None else _one_by_one(text, path, separator, quoted)
    columns = [(cell or "").strip() for cell in rows.row(0)]
    if header is None:
        header = _is_header(columns, names)
    if header:
        rows, lines = rows[1:], None if lines is None else lines[1:]
        columns = _named(columns, path)
    else:
        columns = [str(position) for position in range(len(columns))]
    if rows.is_empty():
        raise DataError(
            "there is a header but no rows",
            file=path,
            remedy="give rows; if line 1 is a row, set header to false (--no-header)",
        )
    rows.columns = columns
    first_line = None if lines is not None else 2 if header else 1
    return Table(rows, Origin(path, first_line, lines), header)


def _bulk(text: str, separator: str, quoted: bool) -> pl.DataFrame | None:
    """All rows at once; None unless every line is a row, none of them short, long or blank."""
    first, content = text.split("\n", 1)[0], text.encode()
    try:
        width = len(first.split(separator))
        if quoted:
            width = len(next(csv.reader([first], delimiter=separator)))
        if quoted and not _lines_are_rows(content, separator, width):
            return None
        rows = pl.read_csv(
            io.BytesIO(content),
            has_header=False,
            separator=separator,
            quote_char='"' if quoted else None,
            schema={str(position): pl.String for position in range(width)},
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, csv.Error, ValueError):
        return None
    # polars fills short rows and blank lines with nulls, so that their last cell is missing.
    return None if not quoted and rows[:, -1].null_count() else rows


def _lines_are_rows(content: bytes, separator: str, width: int) -> bool:
    """Whether every line has `width` cells, each without quotes or within a pair of them."""
    lines = pl.read_csv(
        io.BytesIO(content),
        has_header=False,
        separator=UNIT if separator != UNIT else "\x1e",  # in no line, else this fails
        quote_char=None,
        schema={"line": pl.String},
    ).to_series()
    split = f"\\x{{{ord(separator):x}}}"
    cell = f'(?:[^"{split}]*|"(?:[^"]|"")*")'
    row = f"^{cell}(?:{split}{cell}){{{width - 1}}}\\r?$"
    return bool(lines.str.contains(row).fill_null(value=False).all())


def _one_by_one(
    text: str, path: Path, separator: str, quoted: bool
) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """All rows with their lines, one by one: for quoted line breaks, and to locate errors."""
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=separator,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            strict=True,
        )
        for row in reader:
            if row:
                rows.append(row)
                lines.append(start)
                if len(row) != len(rows[0]):
                    raise DataError(
                        f"{len(row)} cells where the first line has {len(rows[0])}",
                        file=path,
                        line=start,
                        remedy="correct the row; a cell that contains the separator needs quotes",
                    )
            start = reader.line_num + 1
    except (csv.Error, TypeError, ValueError) as error:
        raise DataError(
            f"cannot be split into cells: {error}",
            file=path,
            line=start,
            remedy="check quotes and separator",
        ) from None
    if not rows:
        raise DataError("the file is empty", file=path, remedy="give rows of user and item")
    schema = {str(position): pl.String for position in range(len(rows[0]))}
    return pl.DataFrame(rows, schema=schema, orient="row"), np.array(lines)


def _is_header(cells: Sequence[str], names: Collection[str]) -> bool:
    """Whether a first line is a header: it has one of the given names, or no number at all."""
    return not set(names).isdisjoint(cells) or not any(map(_looks_numeric, cells))


def _looks_numeric(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _named(cells: list[str], path: Path) -> list[str]:
    """Names of columns without RecBole's types; one without a name is called by its position."""
    typed = [TYPED.fullmatch(cell) for cell in cells]
    if all(typed):
        cells = [match[1] for match in typed if match]
    names = [cell or str(position) for position, cell in enumerate(cells)]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise DataError(
                f"two columns are called {name!r}", file=path, line=1, remedy="rename one of them"
            )
    return names


# ---- Which column holds what: named by the caller, or found by a usual name ----------------------
# Compared in lower case without "_", "-" and blanks.
USUAL_NAMES = {
    "user": (
        *("user", "userid", "uid", "customer", "customerid", "visitorid", "sessionid"),
        *("buyer", "buyerid", "client", "clientid", "member", "memberid", "accountid"),
    ),
    "item": (
        "item",
        "itemid",
        "iid",
        "movieid",
        "movie",
        "productid",
        "product",
        "asin",
        "trackid",
        *("sku", "article", "articleid", "listingid", "songid", "bookid", "stockcode"),
    ),
    "rating": ("rating", "ratings", "score", "stars"),
    "timestamp": (
        *("timestamp", "time", "ts", "unixtime", "datetime", "date", "eventtime"),
        *("createdat", "boughtat", "orderedat", "purchasedat", "orderdate", "invoicedate"),
    ),
    "rank": ("rank", "position", "pos", "slot"),
    "score": ("score", "scores", "prediction", "relevance", "value", "rating"),
    "title": ("title", "name", "movietitle", "itemname", "producttitle", "productname"),
}
POSITIONS = {"user": 0, "item": 1, "rating": 2, "timestamp": 3}  # of a file without header


def find_columns(
    table: Table,
    wanted: Mapping[str, str | int | None],
    positions: Mapping[str, int],
    *,
    option: str = "",
) -> dict[str, str | None]:
    """The column of each role: the wanted one, else one with a usual name; None: there is none.

    wanted: by role the name or position of its column; None: not given. User and item must be
        found.
    positions: by role the column in a file without a header.
    option: the prefix of option names in messages.
    """
    found = {role: _find(role, name, table, positions.get(role)) for role, name in wanted.items()}
    for role in ("user", "item"):
        if found[role] is None:
            table.origin.fail(
                f"no column looks like the {role}",
                remedy=f"the columns are {', '.join(map(repr, table.frame.columns))}: name it with "
                f"the option `{option}{role}`, or give the `{option}separator` if they are split "
                "wrongly",
            )
    return found


def log_columns(
    table: Table,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
) -> dict[str, str | None]:
    """The column of each role of a log: a name, or a position from 0; None: by its usual name.

    A file without header has its columns in MovieLens order: user, item, rating, timestamp.
    """
    wanted = {"user": user, "item": item, "rating": rating, "timestamp": time}
    found = find_columns(table, wanted, POSITIONS)
    if found["user"] == found["item"]:
        line = 1 if table.header else None
        raise DataError(
            f"column {found['user']!r} is both the user and the item",
            file=table.origin.file,
            line=line,
            remedy="name two columns with the options `user` and `item`",
        )
    return found


def item_column(table: Table, item: str | int | None = None) -> str:
    """The column of the item in a table with a row per item; the first one without a header.

    item: what the log calls it, which the table may do too; None: found by its usual name.
    """
    if isinstance(item, str) and table.header and item in table.frame.columns:
        return item
    found = _find("item", None if table.header else 0, table, None)
    if found is None:
        table.origin.fail(
            "no column looks like the item",
            remedy=f"the columns are {', '.join(map(repr, table.frame.columns))}: give the one "
            "with the item the name that it has in the log",
        )
    return found


def _find(role: str, wanted: str | int | None, table: Table, position: int | None) -> str | None:
    columns = table.frame.columns
    if wanted is not None:
        return column_named(wanted, table)
    if not table.header:
        return columns[position] if position is not None and position < len(columns) else None
    # Reversed, so that of two columns with one spelling the first is found.
    spelt = {_spelling(column): column for column in reversed(columns)}
    return next((spelt[name] for name in USUAL_NAMES[role] if name in spelt), None)


def column_named(wanted: str | int, table: Table, roles: Collection[str | None] = ()) -> str:
    """The name of a column, given by name or position; `roles` are columns with another use."""
    columns = table.frame.columns
    if isinstance(wanted, int) and 0 <= wanted < len(columns):
        return columns[wanted]
    if wanted not in columns:
        others = [column for column in columns if column not in roles]
        remedy = f"the columns are {', '.join(map(repr, columns))}"
        raise NoColumnError(wanted, others, file=table.origin.file, remedy=remedy)
    return str(wanted)


def is_usual_name(name: str, role: str) -> bool:
    """Whether a column of this name would be found for the role, such as "user"."""
    return _spelling(name) in USUAL_NAMES[role]


def _spelling(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def columns_of(path: str | Path, *, encoding: str = UTF_8, **how: Any) -> list[str]:
    """The names of the columns of a file; empty for a file without a header."""
    lazy = ParquetColumns.from_file(Path(path))
    if lazy is not None:
        return lazy.columns
    table = read_table(path, encoding=encoding, head=True, **how)
    return table.frame.columns if table.header else []


def title_among(columns: Iterable[str]) -> str | None:
    """The column with the titles of items, by its usual name."""
    spelt = {_spelling(column): column for column in columns}
    return next((spelt[name] for name in USUAL_NAMES["title"] if name in spelt), None)
