"""fairhorizon backup and restore: from one kind of database to the other."""

import hashlib
import json
import stat
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from asking import ask

from fairhorizon.cli.app import run
from fairhorizon.errors import DataError
from fairhorizon.service.admin import jobs
from fairhorizon.service.admin.backup import FORMAT, MANIFEST, BackupFile
from fairhorizon.service.admin.set_up import create_limit
from fairhorizon.service.budget.impressions import record_feedback
from fairhorizon.service.budget.recount import recounted
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.settings import Role, ServiceSettings
from fairhorizon.service.store import keys
from fairhorizon.service.store.catalogue import Item, User, forget_user, put_items, put_users
from fairhorizon.service.store.database import SQLITE, Database
from fairhorizon.service.store.feedback import Event
from fairhorizon.service.store.migrating import prepare
from fairhorizon.service.store.schema import (
    accounts,
    feedback,
    limits,
    lists,
    metadata,
    windows,
)
from fairhorizon.service.store.state import register_model

pytestmark = pytest.mark.slow

Replicas = Callable[..., Engine]
Rows = dict[str, list[tuple[object, ...]]]


@pytest.fixture
def other(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Iterator[Database]:
    """A new database of the other kind."""
    if database.dialect == SQLITE:
        url = request.getfixturevalue("postgres").new_database(f"other{time.time_ns()}")
    else:
        url = str(tmp_path / "other.db")
    made = Database(url)
    yield made
    made.close()


def url_of(database: Database) -> str:
    return database.url.render_as_string(hide_password=False)


def all_rows(database: Database) -> Rows:
    with database.reading() as connection:
        return {
            table.name: [
                tuple(row)
                for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns))
            ]
            for table in metadata.sorted_tables
        }


def agree(database: Database) -> bool:
    with database.reading() as connection:
        return all(one.agrees for one in recounted(connection))


def serve_a_shop(replicas: Replicas) -> list[Engine]:
    """Rows of all kinds, two replicas with leases, and showings that await confirmation."""
    first = replicas(slack=20, explore=0.3)
    for text, counts in (("seller=big<=0.8", "confirmed"), ("kind:each<=0.6", "served")):
        create_limit(first.database, text, ServiceSettings(slack=20), counts=counts)
    engines = [first, replicas(slack=20)]
    for number in range(24):
        engine = engines[number % 2]
        made = ask(engine, f"c{number}", 7)
        item, later = made.items[0], 1_700_000_000.5 + number
        events = [
            Event("read", made.user, item, list_id=made.id),
            Event("take", made.user, item, 0.1 * number, later, f"own/{number} é", made.id),
        ]
        record_feedback(engine.database, events, read=("read",))
    with first.database.writing() as connection:
        described = Item("ü1", True, ("x", "y"), {"seller": "ñ", "tags": ["a", "b"]}, 5.5, "'\"\n")
        put_items(first.database, connection, [described])
        put_users(first.database, connection, [User("ann", {"n": None, "m": [1, 2.5]}, "hé")])
        forget_user(first.database, connection, "c7")
        keys.make(first.database, connection, "web", Role.READ)
        jobs.ask(first.database, connection, "refresh", "once", {"model": 1})
    return engines


def test_a_shop_goes_on_in_the_other_kind_of_database(
    replicas: Replicas, database: Database, other: Database, tmp_path: Path
) -> None:
    serve_a_shop(replicas)
    file = tmp_path / "shop.zip"
    assert run(["backup", "--database", url_of(database), "--out", str(file)]) == 0
    before = all_rows(database)
    assert before["leases"]
    assert len(before["replicas"]) == 2
    assert run(["restore", str(file), "--database", url_of(other)]) == 0
    after = all_rows(other)

    assert after.pop("replicas") == after.pop("leases") == []
    del before["replicas"], before["leases"]
    names = list(accounts.columns.keys())
    charged = names.index("charged")
    for row in after["accounts"]:
        stored = dict(zip(names, row, strict=True))
        assert stored["charged"] == stored["used"] + stored["pending"]
    assert any(row[names.index("pending")] for row in after["accounts"])
    for rows in (before["accounts"], after["accounts"]):
        rows[:] = [row[:charged] + row[charged + 1 :] for row in rows]
    assert after == before
    assert agree(other)

    engine = Engine(other, ServiceSettings(slack=20))
    engine.prepare()
    engine.start()
    made = [ask(engine, user) for user in ("c1", "c2")]
    engine.stop()
    with other.reading() as connection:
        found = connection.execute(sa.select(lists.c.number, lists.c.id).order_by(lists.c.number))
        assert [tuple(row) for row in found][-2:] == [(25, made[0].id), (26, made[1].id)]
    assert agree(other)


def test_rows_that_the_database_numbers_go_on_after_the_last(
    replicas: Replicas, database: Database, other: Database, tmp_path: Path
) -> None:
    serve_a_shop(replicas)
    file = tmp_path / "shop.zip"
    assert run(["backup", "--database", url_of(database), "--out", str(file)]) == 0
    assert run(["restore", str(file), "--database", url_of(other)]) == 0

    def last(table: sa.Table) -> int:
        with other.reading() as connection:
            return int(connection.execute(sa.select(sa.func.max(table.c.id))).scalar_one())

    known = {table: last(table) for table in (limits, feedback, windows, accounts)}
    assert create_limit(other, "seller=small<=0.9", ServiceSettings()) == known[limits] + 1
    assert record_feedback(other, [Event("take", "c1", "a1", time=5.0)], read=()) == 1
    assert last(feedback) == known[feedback] + 1
    with other.writing() as connection:
        assert register_model(other, connection, "elsewhere", "ease") == 2
    engine = Engine(other, ServiceSettings())
    engine.prepare()  # opens a window with an account for the new limit
    engine.start()
    engine.stop()
    assert (last(windows), last(accounts)) == (known[windows] + 1, known[accounts] + 1)


def test_into_the_same_kind_and_into_one_that_was_only_prepared(
    replicas: Replicas, database: Database, other: Database, tmp_path: Path
) -> None:
    serve_a_shop(replicas)
    first, second = tmp_path / "first.zip", tmp_path / "second.zip"
    assert run(["backup", "--database", url_of(database), "--out", str(first)]) == 0
    prepare(other)
    assert run(["restore", str(first), "--database", url_of(other)]) == 0
    assert run(["backup", "--database", url_of(other), "--out", str(second)]) == 0
    again = Database(str(tmp_path / "again.db"))
    assert run(["restore", str(second), "--database", url_of(again)]) == 0
    assert all_rows(again) == all_rows(other)
    again.close()


def small_backup(folder: Path) -> Path:
    database = Database(str(folder / "small.db"))
    prepare(database)
    with database.writing() as connection:
        put_users(database, connection, [User(f"u{number}") for number in range(50)])
    file = folder / "small.zip"
    assert run(["backup", "--database", url_of(database), "--out", str(file)]) == 0
    database.close()
    return file


def rewritten(file: Path, **parts: bytes | None) -> Path:
    """With other contents of some parts; None: without them."""
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    changed = file.with_name("changed.zip")
    with zipfile.ZipFile(changed, "w") as archive:
        for name, content in contents.items():
            kept = parts.get(name.partition(".")[0], content)
            if kept is not None:
                archive.writestr(name, kept)
    return changed


def manifest_of(file: Path) -> dict[str, object]:
    with zipfile.ZipFile(file) as archive:
        found: dict[str, object] = json.loads(archive.read(MANIFEST))
        return found


def test_the_manifest_says_what_is_in_it(tmp_path: Path) -> None:
    file = small_backup(tmp_path)
    manifest = manifest_of(file)
    tables = manifest["tables"]
    assert isinstance(tables, dict)
    assert manifest["format"] == FORMAT
    assert set(tables) == set(metadata.tables)
    assert tables["users"]["rows"] == 50
    assert tables["state"]["rows"] == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def refused(file: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said; no database is made."""
    capsys.readouterr()
    assert run(["restore", str(file), "--database", str(target)]) == 1
    assert not target.exists()
    return capsys.readouterr().err


def test_files_that_are_no_whole_backup_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, target = small_backup(tmp_path), tmp_path / "new.db"
    whole = file.read_bytes()
    broken = tmp_path / "broken.zip"
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        broken.write_bytes(whole[:size])
        said = refused(broken, target, capsys)
        assert "broken.zip: is not a backup, or is truncated or damaged (make the backup" in said
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("holiday.txt", "sun")
    assert "is no backup of the service (give a file of" in refused(broken, target, capsys)
    for content in (b"[]", b"{}", b"no json", b'{"format": 1, "revision": 2, "tables": []}'):
        changed = rewritten(file, manifest=content)
        assert "is no backup of the service" in refused(changed, target, capsys)
    assert "users.jsonl is missing" in refused(rewritten(file, users=None), target, capsys)
    other = b'["u0", [], "x"]\n' * 50
    assert "users.jsonl has changed" in refused(rewritten(file, users=other), target, capsys)


def test_a_damaged_byte_anywhere_is_noticed_or_changes_no_row(tmp_path: Path) -> None:
    """What no checksum covers, such as the time of a part, is in no row."""
    file, broken = small_backup(tmp_path), tmp_path / "broken.zip"
    whole, rows = file.read_bytes(), rows_in(BackupFile.checked(file))
    noticed = 0
    for place in range(0, len(whole), 5):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        broken.write_bytes(damaged)
        try:
            found = BackupFile.checked(broken)
        except DataError:
            noticed += 1
        else:
            assert rows_in(found) == rows, place
    assert noticed > len(whole) / 10


def rows_in(backup: BackupFile) -> list[dict[str, object]]:
    return [row for table in metadata.sorted_tables for row in backup.rows(table)]


def test_another_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, target = small_backup(tmp_path), tmp_path / "new.db"
    for key, value in (("revision", "9999"), ("format", "fairhorizon service backup 2")):
        manifest = manifest_of(file) | {key: value}
        changed = rewritten(file, manifest=json.dumps(manifest).encode())
        said = refused(changed, target, capsys)
        assert f"is of another version: '{manifest['format']}'" in said
        assert f"with tables {manifest['revision']}, not" in said


def test_a_database_with_rows_is_refused_and_stays_as_it_is(
    database: Database, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = small_backup(tmp_path)
    prepare(database)
    with database.writing() as connection:
        keys.make(database, connection, "web", Role.READ)
    before = all_rows(database)
    capsys.readouterr()
    assert run(["restore", str(file), "--database", url]) == 1
    said = capsys.readouterr().err
    assert "is not empty: it has rows in keys (give a new, empty database)" in said
    assert all_rows(database) == before


def test_a_restore_that_fails_leaves_nothing(
    database: Database, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is whole, but has one user twice; then the right one is restored."""
    file = small_backup(tmp_path)
    twice = b"".join(b'["u%d", [], ""]\n' % number for number in (1, 2, 3, 1))
    manifest = manifest_of(file)
    tables = manifest["tables"]
    assert isinstance(tables, dict)
    tables["users"] |= {"rows": 4, "sha256": hashlib.sha256(twice).hexdigest()}
    changed = rewritten(file, users=twice, manifest=json.dumps(manifest).encode())
    assert run(["restore", str(changed), "--database", url]) == 1
    assert "rows of users cannot be stored" in capsys.readouterr().err
    assert not any(all_rows(database).values())
    assert run(["restore", str(file), "--database", url]) == 0
    assert len(all_rows(database)["users"]) == 50


def test_a_backup_is_of_one_state_while_lists_are_served(
    replicas: Replicas, database: Database, other: Database, tmp_path: Path
) -> None:
    engines = serve_a_shop(replicas)
    done = threading.Event()

    def go_on() -> None:
        number = 0
        while not done.is_set():
            ask(engines[0], f"c{number % 40}", 5)
            number += 1

    serving = threading.Thread(target=go_on)
    serving.start()
    file = tmp_path / "shop.zip"
    assert run(["backup", "--database", url_of(database), "--out", str(file)]) == 0
    done.set()
    serving.join()
    assert run(["restore", str(file), "--database", url_of(other)]) == 0
    assert agree(other)
    rows = all_rows(other)
    numbers = [row[0] for row in rows["lists"]]
    (state,) = rows["state"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) in state


def test_models_that_are_not_here_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database(str(tmp_path / "one.db"))
    prepare(database)
    with database.writing() as connection:
        register_model(database, connection, "/far/away", "ease")
    database.close()
    file = tmp_path / "one.zip"
    assert run(["backup", "--database", str(tmp_path / "one.db"), "--out", str(file)]) == 0
    assert run(["restore", str(file), "--database", str(tmp_path / "two.db")]) == 0
    assert "note: /far/away: this model is not here (copy its folder)" in capsys.readouterr().err
