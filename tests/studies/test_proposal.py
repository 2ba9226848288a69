"""What a log holds and which limits are proposed for it, worked by hand."""

from pathlib import Path

import pytest

from fairhorizon.studies.proposal import propose

# items a to j, the first two of which have half of the log; two sellers and a price
ITEMS = "abcdefghij"


def seller(item: str) -> str:
    return "Big" if item in "abcdefgh" else "Tiny"


def written(folder: Path, header: str = "buyer,sku,price,seller,note") -> Path:
    lines = [header]
    for user in range(8):
        taken = ["a", "b", *(ITEMS[2 + (user + n) % 8] for n in range(3))]
        for n, item in enumerate(taken):
            price = f"{ITEMS.index(item)}.5"
            lines.append(f"u{user},{item},{price},{seller(item)},{user}{n}")
    file = folder / "log.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.mark.filterwarnings("ignore:.*no timestamps")
def test_columns_numbers_and_limits(tmp_path: Path) -> None:
    found = propose(str(written(tmp_path)), {}, None, None)
    assert (found.rows, found.users, found.items) == (40, 8, 10)
    assert dict(found.columns) == {
        **{"user": "buyer", "item": "sku", "rating": None, "timestamp": None}
    }
    assert found.others == ("price", "seller", "note")
    # of each user's first 3 of 5 interactions, which are a, b and one other
    assert found.popular_of_log == pytest.approx(2 / 3)
    assert (str(found.popular), found.popular_binds) == ("popular<=0.4;weights=log", True)
    # i and j have 3 of 8 places of 8 users in turns: 6 of 40; a price and a note are no groups
    (floor,) = found.floors
    assert (str(floor.limit), floor.n_values) == ("seller=Tiny>=0.07;weights=log", 2)
    assert floor.of_log == pytest.approx(6 / 40)


@pytest.mark.filterwarnings("ignore:.*no timestamps")
def test_a_table_of_items(tmp_path: Path) -> None:
    table = tmp_path / "items.csv"
    rows = [f"{item},Title {item},{'Drama|War' if item in 'ab' else 'War'}" for item in ITEMS]
    table.write_text("\n".join(["sku,title,genre", *rows]) + "\n", encoding="utf-8")
    found = propose(str(written(tmp_path)), {}, table, None)
    assert found.item_columns == ("title", "genre")
    assert [str(one.limit) for one in found.floors] == ["genre=Drama>=0.2;weights=log"]
    assert found.floors[0].of_log == pytest.approx(16 / 40)


def test_a_log_without_header_has_columns_by_position(tmp_path: Path) -> None:
    file = tmp_path / "u.data"
    rows = [f"{user}\t{(user + n) % 10}\t3\t{n}" for user in range(10) for n in range(5)]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    found = propose(str(file), {}, None, None)
    assert dict(found.columns) == {"user": 0, "item": 1, "rating": 2, "timestamp": 3}
    # every item is taken as often as any other: a fifth of the items has a fifth of the log
    assert found.popular_of_log == pytest.approx(0.2)
    assert (str(found.popular), found.popular_binds) == ("popular<=0.2;weights=log", False)


def test_a_named_set_has_no_columns() -> None:
    found = propose("synthetic:users=20,items=30,interactions_per_user=8", {}, None, None)
    assert (found.users, found.items, dict(found.columns), found.others) == (20, 30, {}, ())


@pytest.mark.parametrize(
    ("cells", "is_time"),
    [
        (lambda n: f"{1_700_000_000 + n}", True),
        (lambda n: f"{1_700_000_000_000 + n}", True),
        (lambda n: f"2024-01-{1 + n % 28:02d}", True),
        (lambda n: f"{100 + n}", False),
        (lambda n: f"shelf {n}", False),
    ],
)
@pytest.mark.filterwarnings("ignore:.*no timestamps")
def test_a_column_of_times_is_found_by_its_values(tmp_path: Path, cells, is_time: bool) -> None:
    file = written(tmp_path, "buyer,sku,price,seller,bought_on")
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = [line.rsplit(",", 1)[0] + f",{cells(n)}" for n, line in enumerate(lines[1:])]
    file.write_text("\n".join([lines[0], *rows]) + "\n", encoding="utf-8")
    found = propose(str(file), {}, None, None)
    assert found.columns["timestamp"] == ("bought_on" if is_time else None)
    assert ("bought_on" in found.others) != is_time
