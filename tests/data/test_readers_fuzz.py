"""The readers on anything at all: a valid log or a DataError, and ids come back as they went."""

import contextlib
import csv

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairhorizon.data.interactions import NoTimestampsWarning
from fairhorizon.data.log_files import read_file
from fairhorizon.errors import DataError

one_folder = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
pairs = st.one_of(
    st.lists(st.tuples(texts, texts), min_size=1, max_size=8),
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 99)), min_size=1, max_size=8
    ),
)


@pytest.mark.slow
@one_folder
@given(pairs, st.sampled_from([",", "\t", ";"]))
def test_any_ids_survive_csv(tmp_path, rows, separator):
    rows = list(dict.fromkeys(rows))
    path = tmp_path / "log.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(["user", "item", "time"])
        writer.writerows((user, item, time) for time, (user, item) in enumerate(rows))
        writer.writerow(["a second user", "x", len(rows)])
    log = read_file(path)
    found = zip(log.user_ids[log.users], log.item_ids[log.items], strict=True)
    read = [(str(user), str(item)) for user, item in found]
    assert read[: len(rows)] == [(str(user), str(item)) for user, item in rows]


cells = st.sampled_from(
    [
        "1",
        "2",
        "a",
        "user",
        "item",
        "",
        '"',
        '""',
        "nan",
        "1e999",
        "-0",
        "2020-01-01",
        "é",
        " ",
        "\\",
        ":",
        "::",
    ]
)
ends = st.sampled_from([",", ",", "\t", "::", ";", "\n", "\n", "\r\n", "\r"])
almost_csv = st.lists(st.one_of(cells, ends), max_size=40).map(
    lambda found: "".join(found).encode()
)
contents = st.one_of(
    st.binary(max_size=200), almost_csv, almost_csv.map(lambda text: b"user,item,time\n" + text)
)
names = st.sampled_from(["x.csv", "x.tsv", "x.inter", "u.data", "ratings.dat", "x.parquet", "x"])


@one_folder
@pytest.mark.filterwarnings("ignore::fairhorizon.data.interactions.NoTimestampsWarning")
@pytest.mark.filterwarnings("ignore::fairhorizon.data.interactions.MissingValuesWarning")
@pytest.mark.filterwarnings("ignore::fairhorizon.data.interactions.RepeatsWarning")
@given(
    contents, names, st.sampled_from([None, True, False]), st.sampled_from([None, ",", "::", " "])
)
def test_any_bytes_give_a_log_or_a_data_error(tmp_path, content, name, header, separator):
    path = tmp_path / name
    path.write_bytes(content)
    try:
        log = read_file(path, header=header, separator=separator)
    except DataError as error:
        if error.file != path:
            raise
        return
    assert len(log) >= log.n_users >= 2
    assert np.array_equal(np.unique(log.users), np.arange(log.n_users))
    assert np.array_equal(np.unique(log.items), np.arange(log.n_items))
    if log.timestamps is not None:
        assert np.isfinite(log.timestamps).all()
        assert np.all(np.diff(log.timestamps) >= 0)


@one_folder
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=4), st.booleans())
def test_damaged_parquet_gives_a_log_or_a_data_error(tmp_path, where, damage, cut):
    frame = pl.DataFrame({"user": [1, 2], "item": ["a", "b"], "timestamp": [1.0, 2.0]})
    path = tmp_path / "log.parquet"
    frame.write_parquet(path)
    whole = path.read_bytes()
    where %= len(whole)
    path.write_bytes(
        whole[:where] if cut else whole[:where] + damage + whole[where + len(damage) :]
    )
    with contextlib.suppress(DataError, NoTimestampsWarning):
        assert len(read_file(path, user="user", item="item")) > 0
