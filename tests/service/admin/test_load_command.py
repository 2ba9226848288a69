"""fairhorizon load: files into the service's database."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa

from fairhorizon.cli.app import run
from fairhorizon.service.admin import bulk_load
from fairhorizon.service.admin.bulk_load import BulkLoad, FileColumns, add_labels, read_log
from fairhorizon.service.store.catalogue import (
    Item,
    User,
    find_user,
    forget_user,
    page_of_items,
    put_items,
    remove_item,
)
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.migrating import prepare
from fairhorizon.service.store.schema import feedback, items, metadata
from fairhorizon.service.store.state import read_state

ITEMS = """sku,seller,category,hidden,comment,tags,year
a1,small,shoes|red,false,"a, b",x|y,1999
a2,big,,yes,,z,
007,big,hats,0,,,2001
"""
USERS = "customer,town,comment\nann,Ulm,vip\n7,Bonn|Ulm,\n"
LOG = """user,item,rating,timestamp
ann,a1,4,1700000000
ann,a2,2.5,1700000001
7,a1,,1700000002.5
ann,a1,5,1700000003
"""

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return written


def rows_of(database: Database, table: sa.Table) -> list[sa.Row[tuple[object, ...]]]:
    with database.reading() as connection:
        return list(connection.execute(sa.select(table)))


def test_items_with_their_columns(
    database: Database, url: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("items-of-may.csv", ITEMS)
    assert run(["load", str(file), "--database", url]) == 0
    assert capsys.readouterr().out == f"{file}: 3 new items\n"
    with database.reading() as connection:
        found = {one.id: one for one in page_of_items(connection, "", 10)}
    labels = {"seller": "small", "tags": ["x", "y"], "year": "1999"}
    assert found == {
        "a1": Item("a1", False, ("shoes", "red"), labels, comment="a, b"),
        "a2": Item("a2", True, (), {"seller": "big", "tags": "z"}),
        "007": Item("007", False, ("hats",), {"seller": "big", "year": "2001"}),
    }


def test_items_again_change_only_what_differs(
    database: Database, url: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("items.csv", ITEMS)
    assert run(["load", str(file), "--database", url]) == 0
    with database.writing() as connection:
        remove_item(database, connection, "007")
        before = read_state(database, connection).generation
    file.write_text(ITEMS.replace("a2,big", "a2,small"), encoding="utf-8")
    capsys.readouterr()
    assert run(["load", str(file), "--database", url]) == 0
    assert capsys.readouterr().out == f"{file}: 0 new items, 2 changed, 1 known already\n"
    with database.reading() as connection:
        assert [one.id for one in page_of_items(connection, "", 10)] == ["007", "a1", "a2"]
        assert read_state(database, connection).generation == before + 1
    assert run(["load", str(file), "--database", url]) == 0
    assert capsys.readouterr().out == f"{file}: 0 new items, 3 known already\n"
    with database.reading() as connection:  # replicas have nothing to load
        assert read_state(database, connection).generation == before + 1


def test_users_and_a_log_beside_items_in_one_call(
    database: Database, url: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write("users.csv", USERS), write("items.csv", ITEMS)]
    log = write("clicks.csv", LOG)
    given = [*map(str, files), "--log", str(log), "--type", "click", "--database", url]
    assert run(["load", *given]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{files[1]}: 3 new items",
        f"{files[0]}: 2 new users",
        f"{log}: 4 new events",
    ]
    with database.reading() as connection:
        assert find_user(connection, "ann") == User("ann", {"town": "Ulm"}, "vip")
        assert find_user(connection, "7") == User("7", {"town": ["Bonn", "Ulm"]})
    found = [
        (row.type, row.user_id, row.item_id, row.value, row.time, row.list_id)
        for row in rows_of(database, feedback)
    ]
    assert found == [
        ("click", "ann", "a1", 4.0, 1700000000.0, None),
        ("click", "ann", "a2", 2.5, 1700000001.0, None),
        ("click", "7", "a1", 1.0, 1700000002.5, None),
        ("click", "ann", "a1", 5.0, 1700000003.0, None),
    ]


def test_the_same_log_again_adds_nothing_and_says_so(
    database: Database, url: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("log.csv", LOG)
    assert run(["load", str(file), "--database", url]) == 0
    before = rows_of(database, feedback)
    capsys.readouterr()
    assert run(["load", str(file), "--database", url]) == 0
    assert capsys.readouterr().out == f"{file}: 0 new events, 4 known already\n"
    assert rows_of(database, feedback) == before
    with file.open("a", encoding="utf-8") as more:
        more.write("7,a2,1,1700000004\n")
    assert run(["load", str(file), "--database", url]) == 0
    assert capsys.readouterr().out == f"{file}: 1 new events, 4 known already\n"
    assert run(["load", str(file), "--type", "view", "--database", url]) == 0
    assert capsys.readouterr().out == f"{file}: 5 new events\n"


def test_other_columns_and_dates_from_parquet_are_the_same_events(
    database: Database, url: str, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["load", str(write("log.csv", LOG)), "--database", url]) == 0
    frame = pl.DataFrame(
        {
            "who": ["ann", "ann", "7", "ann"],
            "what": ["a1", "a2", "a1", "a1"],
            "when": [1700000000.0, 1700000001.0, 1700000002.5, 1700000003.0],
        }
    ).with_columns(pl.from_epoch((pl.col("when") * 1e6).cast(pl.Int64), "us").alias("when"))
    frame.write_parquet(tmp_path / "log.parquet")
    frame.with_columns(pl.col("when").dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ")).write_csv(
        tmp_path / "log-iso.tsv", separator="\t"
    )
    named = ["--user", "who", "--item", "what", "--time", "when", "--database", url]
    capsys.readouterr()
    files = [str(tmp_path / name) for name in ("log.parquet", "log-iso.tsv")]
    assert run(["load", *files, *named]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: 0 new events, 4 known already" for file in files
    ]
    assert len(rows_of(database, feedback)) == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.csv", LOG + "ann,,1,1700000009\n", "log.csv line 6: item is missing"),
        (
            "log.csv",
            LOG.replace("00000001", "x"),
            "log.csv line 3: timestamp '17x' is not a number",
        ),
        ("log.csv", LOG.replace("2.5,", "two,"), "log.csv line 3: rating 'two' is not a number"),
        (
            "log.csv",
            LOG.replace("1700000001", "1700000001000"),
            "log.csv line 3: timestamp 1700000001000 is in the future (give seconds since 1970, "
            "not milliseconds",
        ),
        ("log.csv", "user,item\nann,a1\nbob,a2\n", "log.csv: no column looks like the time"),
        ("log.csv", "a,b,time\nann,a1,1\nbob,a2,1\n", "log.csv: no column looks like the user"),
        ("log.csv", LOG.replace("a2", "a" * 257), "is longer than 256 characters"),
        ("items.csv", ITEMS + "a1,x,,,,,\n", "items.csv line 5: sku 'a1' has a row already"),
        ("items.csv", ITEMS.replace("yes", "si"), "line 3: hidden 'si' is neither true nor false"),
        ("users.csv", USERS + ",Kiel,\n", "users.csv line 4: customer is missing"),
        ("sales.csv", LOG, "(give --items sales.csv, --users sales.csv or --log sales.csv)"),
    ],
)
def test_a_bad_row_is_reported_and_nothing_is_written(
    write: Write,
    name: str,
    text: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    write("items-good.csv", ITEMS)
    write(name, text)
    assert run(["load", "items-good.csv", name, "--database", "new.db"]) == 1
    assert message in capsys.readouterr().err
    assert not Path("new.db").exists()


def test_a_load_that_was_interrupted_is_finished_by_the_same_command(
    database: Database, url: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "user,item,time\n" + "".join(f"u{row % 7},a{row},{row}\n" for row in range(25))
    file = write("log.csv", text)
    monkeypatch.setattr(bulk_load, "BLOCK", 10)

    def stop(done: int, of: int) -> None:
        assert of == 25
        if done == 20:
            raise KeyboardInterrupt

    prepare(database)
    rows = read_log(file, FileColumns(), "take")
    with pytest.raises(KeyboardInterrupt):
        BulkLoad(database, stop).log(rows)
    assert len(rows_of(database, feedback)) == 20
    assert run(["load", str(file), "--database", url]) == 0
    assert sorted(row.item_id for row in rows_of(database, feedback)) == sorted(rows.items)


def test_who_was_forgotten_is_not_brought_back_by_an_old_file(
    database: Database, url: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(database)
    with database.writing() as connection:
        forget_user(database, connection, "ann")
    files = [str(write("users.csv", USERS)), str(write("log.csv", LOG))]
    assert run(["load", *files, "--database", url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{files[0]}: 1 new users, 1 of forgotten users left out",
        f"{files[1]}: 1 new events, 3 of forgotten users left out",
    ]
    everything = [repr(row) for table in metadata.sorted_tables for row in rows_of(database, table)]
    assert not [row for row in everything if "ann" in row]


def test_the_address_can_come_from_the_environment(
    database: Database, url: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRHORIZON_DATABASE", url)
    assert run(["load", "--items", str(write("table.csv", ITEMS))]) == 0
    assert len(rows_of(database, items)) == 3


@pytest.mark.parametrize(
    "command",
    [
        ["load", "items.csv"],
        ["export", "--out", "out"],
        ["backup", "--out", "b.zip"],
        ["forget", "ann"],
        ["ledger"],
        ["keys", "list"],
        ["keys", "make", "--name", "n", "--role", "read"],
    ],
)
def test_a_password_is_never_printed(
    command: list[str],
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write("items.csv", ITEMS)
    for url in (
        "postgresql://me:hush@127.0.0.1:1/shop",
        "mysql://me:hush@127.0.0.1/shop",
        "postgresql:/me:hush@127.0.0.1/shop",  # a slip, which would be the path of a file
    ):
        assert run([*command, "--database", url]) == 1
        said = capsys.readouterr()
        assert "error: " in said.err
        assert "hush" not in said.out + said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.csv"]


def test_nothing_to_load_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["load", "--database", str(tmp_path / "new.db")]) == 1
    assert "nothing to load (give --items, --users or --log FILE)" in capsys.readouterr().err


def test_labels_of_a_table_go_to_items_and_nothing_else_is_changed(database: Database) -> None:
    prepare(database)
    hidden = Item("a", hidden=True, categories=("red",), labels={"title": "Lamp", "kind": "k1"})
    with database.writing() as connection:
        put_items(database, connection, [hidden, Item("b", labels=["word"]), Item("gone")])
        remove_item(database, connection, "gone")
    table = [Item(one, categories=("blue",), labels={"kind": "k2"}) for one in ("a", "b", "new")]
    add_labels(database, [*table, Item("gone", labels={"kind": "k2"})])
    with database.reading() as connection:
        generation = read_state(database, connection).generation
        found = {one.id: one for one in page_of_items(connection, "", 10)}
    assert found["a"] == replace(hidden, labels={"title": "Lamp", "kind": "k2"})
    assert found["b"].labels == {"kind": "k2"}
    assert found["new"] == table[2]
    assert "gone" not in found
    add_labels(database, table)  # as at the next start
    with database.reading() as connection:
        assert read_state(database, connection).generation == generation
