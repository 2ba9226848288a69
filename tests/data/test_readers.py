"""Every file format, the columns found or named, and errors that name file, line and remedy."""

import gzip
import io
import warnings
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairhorizon.data import tables
from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import (
    Interactions,
    MissingValuesWarning,
    NoTimestampsWarning,
    RepeatsWarning,
)
from fairhorizon.data.loading import load
from fairhorizon.data.log_files import read_file
from fairhorizon.data.tables import columns_of
from fairhorizon.datasets import DataSpec
from fairhorizon.errors import DataError

ROWS = [("196", "242", 3.0, 30), ("186", "302", 4.0, 20), ("196", "51", 1.0, 10)]


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows_of(log: Interactions) -> list[tuple[object, ...]]:
    columns = [log.user_ids[log.users], log.item_ids[log.items]]
    columns += [column for column in (log.ratings, log.timestamps) if column is not None]
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("name", "head", "separator"),
    [
        ("u.data", "", "\t"),
        ("ratings.dat", "", "::"),
        ("ml.inter", "user_id:token\titem_id:token\trating:float\ttimestamp:float", "\t"),
        ("ratings.csv", "userId,movieId,rating,timestamp", ","),
        ("ratings.csv", "", ","),
        ("ratings.csv", "User ID;Item-Id;Score;Time", ";"),
        ("log.tsv", "uid\titem\tratings\tts", "\t"),
        ("log.tsv", "", "\t"),
        ("log", "", "|"),
        ("bom.csv", "\ufeffuser,item,rating,timestamp", ","),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
def test_text_formats(tmp_path, name, head, separator, end):
    lines = [head] if head else []
    lines += [separator.join(map(str, row)) for row in ROWS]
    log = read_file(write(tmp_path, name, end.join(lines) + end))
    assert rows_of(log) == [(196, 51, 1, 10), (186, 302, 4, 20), (196, 242, 3, 30)]
    assert log.timestamps.dtype == np.int64
    assert log.name == name


def test_parquet(tmp_path):
    frame = pl.DataFrame(ROWS, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")
    frame.write_parquet(tmp_path / "log.parquet")
    log = read_file(tmp_path / "log.parquet")
    assert rows_of(log) == [(196, 51, 1, 10), (186, 302, 4, 20), (196, 242, 3, 30)]


def test_columns_by_name_and_by_position(tmp_path):
    path = write(tmp_path, "log.csv", "t,who,2024,what\n1,a,x,b\n0,b,y,c\n")
    named = read_file(path, user="who", item="what", time="t")
    assert rows_of(named) == [("b", "c", 0), ("a", "b", 1)]
    by_position = read_file(path, user=1, item=3, time=0, header=True)
    assert rows_of(by_position) == rows_of(named)
    bare = write(tmp_path, "bare.csv", "1,a,x,b\n0,b,y,c\n")
    numbered = read_file(bare, user="1", item=3, rating=0, time=0)
    assert rows_of(numbered) == [("b", "c", 0, 0), ("a", "b", 1, 1)]


def test_of_columns_that_are_spelt_alike_the_first_counts(tmp_path):
    path = write(tmp_path, "log.csv", "user_id,Item,User ID,item,ts\na,x,b,y,1\nb,z,a,w,2\n")
    assert rows_of(read_file(path)) == [("a", "x", 1), ("b", "z", 2)]


def test_a_header_can_be_denied(tmp_path):
    path = write(tmp_path, "log.csv", "anna,book\nbert,pen\n")
    with pytest.warns(NoTimestampsWarning, match=r"log\.csv has no timestamps"):
        log = read_file(path, header=False)
    assert rows_of(log) == [("anna", "book"), ("bert", "pen")]


def test_iso_times_are_seconds_in_utc(tmp_path):
    text = (
        "user,item,date\n1,2,1970-01-02\n2,2,1970-01-01T01:00:00+01:00\n1,3,1970-01-01 00:00:01Z\n"
    )
    log = read_file(write(tmp_path, "log.csv", text))
    assert log.timestamps.tolist() == [0, 1, 86400]


def test_repeats_and_attributes(tmp_path):
    text = 'user,item,timestamp,genre\n1,9,5,"Drama|War"\n1,9,4,Comedy\n2,8,3,Comedy\n'
    path = write(tmp_path, "log.csv", text)
    with pytest.warns(RepeatsWarning, match=r"log\.csv: 1 row repeats the user and item of"):
        log = read_file(path, repeats="last", attributes=["genre"])
    assert rows_of(log) == [(2, 8, 3), (1, 9, 5)]
    assert log.attributes["genre"].tolist() == ["Comedy", "Drama|War"]


HEAD = "user,item,rating,timestamp\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "log.csv: the file is empty"),
        (" \n\n", "log.csv: the file is empty"),
        (HEAD, "log.csv: there is a header but no rows"),
        (HEAD + "1,2,3,4\n2,2,3,abc\n", "log.csv line 3: timestamp 'abc' is not a number"),
        (HEAD + "1,2,3,4\n\n2,2,3,abc\n", "log.csv line 4: timestamp 'abc' is not a number"),
        ("\n" + HEAD + "1,2,3,4\n2,2,3,abc\n", "log.csv line 4: timestamp 'abc' is not a number"),
        (HEAD + "1,2,good,4\n", "log.csv line 2: rating 'good' is not a number"),
        (HEAD + "1,2,3,2020-01-01\n1,3,3,x", "line 3: timestamp 'x' is not a number"),
        (HEAD + '1,"a\nb",3,4\n2,2,"5","NaN"\n', "log.csv line 4: timestamp is missing (NaN)"),
        (HEAD + "1,2,3,4\n2,2,3,inf\n", "log.csv line 3: timestamp inf is not finite"),
        (HEAD + "1,2,3,4\n,2,3,4\n", "log.csv line 3: user is missing"),
        (HEAD + "1,2,3,4\n1,3,3,\n", "log.csv line 3: timestamp is missing"),
        (HEAD + "1,2,3,4\n1,2,3\n", "log.csv line 3: 3 cells where the first line has 4"),
        (HEAD + "1,2,3,4\n1,2,3,4,5\n", "log.csv line 3: 5 cells where the first line has 4"),
        (HEAD + '1,"2,3,4\n1,2,3,4\n', "log.csv line 2: cannot be split into cells"),
        (HEAD + "1,2,3,4\n1,3,3,5\n", "log.csv: all rows are of one user, 1"),
        ("user,user,item\n1,2,3\n", "log.csv line 1: two columns are called 'user'"),
        ("who,item\na,b\n", "no column looks like the user (the columns are 'who', 'item': name"),
        ("user,what\na,b\n", "with the option `item`"),
        (b"user,item\n1,\xff\n", "log.csv line 2: is not utf-8 text"),
        (b"user,item\n1,2\n\0\0", "log.csv line 3: contains zero bytes, so it is a binary file"),
        (b"\x89PNG\r\n\x1a\n\0", "log.csv line 1: is not utf-8 text"),
    ],
)
def test_faults_name_file_line_and_remedy(tmp_path, text, message):
    path = write(tmp_path, "log.csv", text)
    with pytest.raises(DataError) as caught:
        read_file(path)
    assert message in str(caught.value)
    assert caught.value.remedy
    assert caught.value.file == path


def test_faults_of_paths_options_and_parquet(tmp_path):
    path = write(tmp_path, "log.csv", HEAD + "1,2,3,4\n")
    for call, fault in [
        (lambda: read_file(tmp_path / "no.csv"), "there is no such file"),
        (lambda: read_file(tmp_path), "is a folder, not a file"),
        (lambda: read_file(path, user="who"), r"no column 'who' \(the columns are 'user'"),
        (lambda: read_file(path, user=4), "there is no column 4"),
        (lambda: read_file(path, encoding="klingon"), "unknown encoding"),
        (
            lambda: read_file(write(tmp_path, "a.parquet", b"PAR1 PAR1")),
            "not a Parquet file",
        ),
    ]:
        with pytest.raises(DataError, match=fault):
            call()
    frame = pl.DataFrame({"user": [[1], [2]], "item": [1, 2], "timestamp": [1, 2]})
    frame.write_parquet(tmp_path / "lists.parquet")
    with pytest.raises(DataError, match="row 1: user"):
        read_file(tmp_path / "lists.parquet")
    frame.clear().write_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="there are no rows"):
        read_file(tmp_path / "none.parquet")


ACCENTS = HEAD + "zoé,l,3,4\nanna,m,2,5\n"
READ = [("zoé", "l", 3, 4), ("anna", "m", 2, 5)]


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16-le", "utf-16-be", "UTF8"])
def test_an_encoding_can_be_named(tmp_path, encoding):
    path = write(tmp_path, "log.csv", ACCENTS.encode(encoding))
    assert rows_of(read_file(path, encoding=encoding)) == READ


@pytest.mark.parametrize("coded", ["utf-16", "utf-16-be", "utf-32", "utf-8"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_byte_order_mark_counts_for_more_than_the_encoding(tmp_path, coded, encoding):
    mark = "" if coded in ("utf-16", "utf-32") else "\ufeff"  # these two write one themselves
    path = write(tmp_path, "log.csv", (mark + ACCENTS).encode(coded))
    assert rows_of(read_file(path, encoding=encoding)) == READ


def test_text_that_is_not_utf_8_names_line_and_option(tmp_path):
    for content, options, message in (
        (ACCENTS.encode("latin-1"), {}, "line 2: is not utf-8 text"),
        (ACCENTS.encode(), {"encoding": "ascii"}, "line 2: is not ascii text"),
        (ACCENTS.encode("utf-16")[:-1], {}, "line 3: is not utf-16 text"),
    ):
        path = write(tmp_path, "log.csv", content)
        with pytest.raises(DataError) as caught:
            read_file(path, **options)
        assert str(caught.value).startswith(f"{path} {message}")
        assert caught.value.remedy.endswith("name its encoding, e.g. --encoding latin-1")
    with pytest.raises(DataError, match=r"line 1: contains zero bytes.* give --encoding utf-16"):
        read_file(write(tmp_path, "log.csv", HEAD.encode("utf-16-le")))


@pytest.mark.parametrize("name", ["log.csv.gz", "log.csv", "log"])
def test_gzip_is_recognised_by_content(tmp_path, name):
    path = write(tmp_path, name, gzip.compress(ACCENTS.encode()))
    assert rows_of(read_file(path)) == READ
    assert read_file(path).name == name


def test_the_separator_and_parquet_follow_from_the_name_inside(tmp_path):
    dat = b"a::l,x::3::4\nb::m,y::2::5\n"
    rows = [("a", "l,x", 3, 4), ("b", "m,y", 2, 5)]
    assert rows_of(read_file(write(tmp_path, "r.dat.gz", gzip.compress(dat)))) == rows
    packed = write(tmp_path, "r.zip", zipped(**{"in/": b"", "in/r.dat": dat, "__MACOSX/r": b""}))
    assert rows_of(read_file(packed)) == rows
    buffer = io.BytesIO()
    frame = pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")
    frame.write_parquet(buffer)
    packed = write(tmp_path, "p.zip", zipped(**{"p.parquet": buffer.getvalue()}))
    assert rows_of(read_file(packed)) == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped(**{"a.csv": b"", "b/c.csv": b""}), "holds 2 files: a.csv, b/c.csv (unpack it"),
        (zipped(**dict.fromkeys("abcdefg", b"")), "holds 7 files: a, b, c, d, e, ... (unpack it"),
        (zipped(), "holds 0 files (give a zip with one file)"),
        (zipped(a=ACCENTS.encode())[:60], "cannot be unpacked"),
        (gzip.compress(ACCENTS.encode())[:-9], "cannot be unpacked"),
        (b"\x1f\x8bnonsense", "cannot be unpacked"),
        (gzip.compress(b""), "the file is empty"),
        (gzip.compress(b"user,item\n1,\xff\n"), "line 2: is not utf-8 text"),
    ],
    # archives hold the time at which they were made: no names for tests of several processes
    ids=["two", "seven", "none", "cut-zip", "cut-gzip", "nonsense", "empty", "binary"],
)
def test_faults_of_archives(tmp_path, content, message):
    path = write(tmp_path, "log.zip", content)
    with pytest.raises(DataError) as caught:
        read_file(path)
    assert message in str(caught.value)
    assert caught.value.file == path
    assert caught.value.remedy


@pytest.mark.parametrize("last", ["timestamp", "rating"])
def test_an_empty_rating_is_a_missing_one(tmp_path, last):
    rows = [(1, 2, 10, 3), (1, 3, 11, ""), (2, 2, 12, 4)]
    order = (0, 1, 2, 3) if last == "rating" else (0, 1, 3, 2)
    lines = [",".join(str(row[place]) for place in order) for row in rows]
    head = "user,item,timestamp,rating" if last == "rating" else "user,item,rating,timestamp"
    path = write(tmp_path, "log.csv", "\n".join([head, *lines]))
    with pytest.warns(MissingValuesWarning, match=r"log\.csv: 1 rating is missing of 3: ") as said:
        log = read_file(path)
    assert len(said) == 1
    np.testing.assert_array_equal(log.ratings, [3, np.nan, 4])


def test_item_attribute_of_another_file(tmp_path):
    log = from_arrays([1, 2, 2], [30, 10, 20], name="log")
    films = write(
        tmp_path,
        "movies.dat",
        "10::Léon::Drama\n30::Up::War|Comedy\n20::Big::War\n".encode("latin-1"),
    )
    latin = DataSpec(source="log", encoding="latin-1")
    found = latin.column_of_table(films, "2", log)
    assert found.tolist() == ["Drama", "War", "War|Comedy"]
    table = write(tmp_path, "items.csv", "movieId,seller\n10,a\n20,\n30,\n")
    data = DataSpec(source="log")
    with pytest.warns(MissingValuesWarning, match=r"items\.csv: 2 items have no seller of 3: "):
        found = data.column_of_table(table, "seller", log)
    assert found.tolist() == ["a", "", ""]
    table = write(tmp_path, "items.csv", "movieId,seller\n10,a\n20,b\n")
    with pytest.raises(DataError, match="item 30 of the log is not in the table"):
        data.column_of_table(table, "seller", log)
    with pytest.raises(DataError, match="no column 'price'"):
        data.column_of_table(table, "price", log)
    table = write(tmp_path, "items.csv", "Artikel/SKU,seller\n10,a\n20,b\n30,c\n")
    named = DataSpec(source="log", item="Artikel/SKU").column_of_table(table, "seller", log)
    assert named.tolist() == ["a", "b", "c"]


def test_an_item_with_two_labels_is_refused_with_its_line(tmp_path):
    log = from_arrays([1, 2, 2], [30, 10, 20], name="log")
    text = "item,seller,colour\n10,a,red\n20,b,red\n30,c,red\n10,,red\n10,d,red\n"
    table = write(tmp_path, "items.csv", text)
    with pytest.raises(DataError, match=r"items\.csv line 6: .* seller 'a' .* here 'd'"):
        DataSpec(source="log").column_of_table(table, "seller", log)
    same = DataSpec(source="log").column_of_table(table, "colour", log)
    assert same.tolist() == ["red", "red", "red"]  # twice the same is no fault


def test_one_column_is_not_the_user_and_the_item(tmp_path):
    path = write(tmp_path, "log.csv", "user,item,time\n1,2,3\n")
    with pytest.raises(DataError, match=r"log\.csv line 1: column 'user' is both the user and"):
        read_file(path, item="user")


@pytest.mark.parametrize("form", ["csv", "parquet", "folder", "polars", "pandas"])
def test_incomplete_rows_are_counted_and_can_be_left_out(tmp_path, form):
    rows = {
        "user": ["a", "", "b", None, "c", "a"],
        "item": [1, 2, 3, 4, None, 2],
        "time": [5, 4, 3, 2, 1, 0],
        "seller": ["x", "y", "z", "x", "y", "y"],
    }
    frame = pl.DataFrame(rows)
    source = {"polars": frame, "pandas": frame.to_pandas()}.get(form)
    if source is None:
        source = tmp_path / {"folder": "parts"}.get(form, f"log.{form}")
        if form == "folder":
            source.mkdir()
            frame[:3].write_csv(source / "a.csv")
            frame[3:].write_parquet(source / "b.parquet")
        else:
            getattr(frame, f"write_{form}")(source)
    count = "1 row has an empty cell of 3" if form == "folder" else "3 rows have an empty cell of 6"
    where = {"csv": "line 3: ", "folder": "line 3: "}.get(form, "row 2: ")
    with pytest.raises(DataError, match=rf"{where}user is missing; {count} .*--drop-incomplete"):
        load(source, cache_dir=tmp_path)
    for _ in range(2):  # the second time, parts are from the store
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            log = load(source, cache_dir=tmp_path, drop_incomplete=True)
        assert rows_of(log) == [("a", 2, 0), ("b", 3, 3), ("a", 1, 5)]
        assert log.further["seller"].tolist() == ["x", "y", "z"]
        assert [str(one.message).split(": ")[1] for one in said] == ["3 rows of 6 left out"]


def test_many_rows_keep_each_pair_once(tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3000, (200_000, 2))
    frame = pl.DataFrame(
        {"user": codes[:, 0], "item": codes[:, 1], "timestamp": np.arange(200_000)}
    )
    frame.write_csv(tmp_path / "log.csv")
    kept = len(np.unique(codes, axis=0))
    with pytest.warns(RepeatsWarning, match=f"log.csv: {200_000 - kept:,} rows repeat"):
        log = read_file(tmp_path / "log.csv")
    assert len(log) == kept


QUOTED = 'user,item,"title, long",time\n"a,1","x",plain,1\nb,"y ""z""","c, d",2\n'


def test_quoted_cells_are_read_at_once_unless_a_line_is_no_row(tmp_path, monkeypatch):
    """Row by row is the slow way, which knows all of quoting: both give the same cells."""
    slow = []
    one_by_one = tables._one_by_one
    monkeypatch.setattr(tables, "_one_by_one", lambda *a: slow.append(a[1].name) or one_by_one(*a))
    table = tables.read_table(write(tmp_path, "at-once.csv", QUOTED))
    assert table.frame.columns == ["user", "item", "title, long", "time"]
    assert table.frame.rows() == [("a,1", "x", "plain", "1"), ("b", 'y "z"', "c, d", "2")]
    assert not slow
    for name, line in (("break.csv", 'c,"line\nbreak",t,3\n'), ("inner.csv", 'c,5" nail,t,3\n')):
        slowly = tables.read_table(write(tmp_path, name, QUOTED + line))
        assert slowly.frame[:2].rows() == table.frame.rows()
        assert slowly.frame[2].row(0)[1] in ("line\nbreak", '5" nail')
    assert slow == ["break.csv", "inner.csv"]


def test_a_fault_below_quoted_cells_is_in_its_line(tmp_path):
    path = write(tmp_path, "log.csv", QUOTED + "c,z,t,soon\n")
    with pytest.raises(DataError, match="line 4: time 'soon' is not a number"):
        read_file(path)


def test_columns_of_a_file_are_known_without_its_rows(tmp_path):
    rows = "".join(f"{row % 90},{row},1\n" for row in range(20_000))
    assert columns_of(write(tmp_path, "log.csv", "user,item,time\n" + rows)) == [
        "user",
        "item",
        "time",
    ]
    pl.DataFrame({"user": [1], "seller": ["a"]}).write_parquet(tmp_path / "log.parquet")
    assert columns_of(tmp_path / "log.parquet") == ["user", "seller"]


def test_other_columns_of_a_parquet_file_are_read_when_they_are_asked_for(tmp_path):
    path = tmp_path / "log.parquet"
    pl.DataFrame(
        {"user": [1, 2, 1], "item": [5, 5, 6], "time": [1, 2, 3], "seller": ["a", None, "b"]}
    ).write_parquet(path)
    log = read_file(path)
    assert list(log.further) == ["seller"]
    assert log.further["seller"].tolist() == ["a", "b"]
    later = read_file(path)
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="is not a Parquet file or is damaged"):
        later.further["seller"]
