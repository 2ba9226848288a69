"""fairhorizon keys: made once, shown once, kept as a hash."""

import hashlib
from itertools import product

import pytest
import sqlalchemy as sa

from fairhorizon.cli.app import run
from fairhorizon.service.settings import Role
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.keys import Key, any_in_use, by_id, find
from fairhorizon.service.store.schema import keys, metadata


def made(url: str, role: Role, capsys: pytest.CaptureFixture[str], name: str = "web site") -> str:
    capsys.readouterr()
    assert run(["keys", "make", "--name", name, "--role", role.value, "--database", url]) == 0
    said = capsys.readouterr()
    (key,) = said.out.splitlines()  # alone on stdout
    assert said.out == f"{key}\n"
    assert key not in said.err
    return key


def found(database: Database, text: str) -> Key | None:
    with database.reading() as connection:
        return find(connection, text)


def test_a_key_is_found_and_only_its_hash_is_kept(
    database: Database, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = made(url, Role.FEEDBACK, capsys)
    prefix, number, secret = key.split("_", 2)
    assert prefix == "fh"
    assert found(database, key) == Key(number, "web site", Role.FEEDBACK)
    with database.reading() as connection:
        cells = [
            str(cell)
            for table in metadata.sorted_tables
            for row in connection.execute(sa.select(table))
            for cell in row
        ]
        kept = connection.execute(sa.select(keys.c.secret_hash)).scalar_one()
    assert not [cell for cell in cells if secret in cell]
    assert kept == hashlib.sha256(secret.encode()).hexdigest()
    assert len(secret) >= 43  # 256 bits


def test_two_keys_have_nothing_in_common(
    database: Database, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (made(url, Role.READ, capsys) for _ in range(2))
    assert not set(first.split("_", 2)[1:]) & set(second.split("_", 2)[1:])
    swapped = f"fh_{first.split('_')[1]}_{second.split('_', 2)[2]}"
    assert found(database, swapped) is None


def test_what_is_not_the_key_is_not_found(
    database: Database, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = made(url, Role.ADMIN, capsys)
    prefix, number, secret = key.split("_", 2)
    other = "x" if secret[0] != "x" else "y"
    wrong = [
        f"{prefix}_{number}_{other}{secret[1:]}",
        key[:-1],
        key + "x",
        f"{prefix}_{number}_",
        f"{prefix}_{number}",
        f"sk_{number}_{secret}",
        f"_{number}_{secret}",
        f"{prefix}_{'0' * len(number)}_{secret}",
        f"{number}_{secret}",
        secret,
        key.swapcase(),
        "",
        "_",
        "é_ü_ñ",
        f"{prefix}_{number}_{hashlib.sha256(secret.encode()).hexdigest()}",
    ]
    assert [text for text in wrong if found(database, text) is not None] == []
    assert found(database, key) is not None


def test_a_key_that_has_ended_is_not_found(
    database: Database, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key, stays = (made(url, Role.READ, capsys, name) for name in ("old", "new"))
    number = key.split("_")[1]
    assert run(["keys", "end", number, "--database", url]) == 0
    assert found(database, key) is None
    assert found(database, stays) is not None
    with database.reading() as connection:
        assert by_id(connection, number) is None
        assert any_in_use(connection)
    capsys.readouterr()
    assert run(["keys", "end", number, "--database", url]) == 1
    assert f"{number}: no key in use has this id" in capsys.readouterr().err
    assert run(["keys", "end", stays, "--database", url]) == 0  # the whole key is understood
    said = capsys.readouterr()
    assert stays.split("_", 2)[2] not in said.out + said.err
    assert found(database, stays) is None
    with database.reading() as connection:
        assert not any_in_use(connection)


def test_the_list_has_no_secrets(
    database: Database, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = made(url, Role.READ, capsys, "one"), made(url, Role.ADMIN, capsys, "two")
    assert run(["keys", "end", second.split("_")[1], "--database", url]) == 0
    capsys.readouterr()
    assert run(["keys", "list", "--database", url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        [first.split("_")[1], "read", "made"],
        [second.split("_")[1], "admin", "made"],
    ]
    assert [line.split()[-1] for line in lines] == ["one", "two"]
    assert ["ended" in line for line in lines] == [False, True]
    assert not [line for line in lines for key in (first, second) if key.split("_", 2)[2] in line]
    with database.reading() as connection:
        hashes = connection.execute(sa.select(keys.c.secret_hash)).scalars().all()
    assert not [one for one in hashes if one in " ".join(lines)]


def test_each_role_may_do_what_those_before_it_may() -> None:
    order = (Role.READ, Role.FEEDBACK, Role.ADMIN)
    assert {(one, needed): one.allows(needed) for one, needed in product(order, order)} == {
        (Role.READ, Role.READ): True,
        (Role.READ, Role.FEEDBACK): False,
        (Role.READ, Role.ADMIN): False,
        (Role.FEEDBACK, Role.READ): True,
        (Role.FEEDBACK, Role.FEEDBACK): True,
        (Role.FEEDBACK, Role.ADMIN): False,
        (Role.ADMIN, Role.READ): True,
        (Role.ADMIN, Role.FEEDBACK): True,
        (Role.ADMIN, Role.ADMIN): True,
    }


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--name", "x", "--role", "root"], 2, "'root' is not one of 'read', 'feedback', 'admin'"),
        (["--name", " ", "--role", "read"], 1, "give 1 to 256 characters"),
        (["--name", "x" * 257, "--role", "read"], 1, "give 1 to 256 characters"),
    ],
)
def test_mistakes(
    url: str, options: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", "make", *options, "--database", url]) == code
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""
