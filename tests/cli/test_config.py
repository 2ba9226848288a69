"""--config: every command takes the file, and what is typed wins."""

import csv
import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from fairhorizon.cli.app import app, run

USERS, ITEMS = 30, 40
FILE = """\
method = "ease+lists"
seed = 3
limits = ["popular<=0.4", "shop=Corner<=0.35"]

[data]
source = "log.csv"

[columns]
user = "buyer"
item = "sku"
time = "bought_at"

[settings]
l2 = 300
[settings.lists]
spread = 0.9
"""
COMMANDS = (
    *("fit", "evaluate", "recommend", "audit", "compare", "levels", "frontier", "longterm"),
    *("efficiency", "tune", "demo"),
)


def shop(item: int) -> str:
    return "Mega" if item % 2 == 0 else "Corner"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file beside a log with column names of its own, in a folder below the working folder."""
    draw, folder = random.Random(5), tmp_path / "shop"
    folder.mkdir()
    with (folder / "log.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["buyer", "sku", "bought_at", "shop"])
        for user in range(USERS):
            taken = sorted(range(ITEMS), key=lambda item: draw.random() * (item + 5))[:10]
            for time, item in enumerate(draw.sample(taken, len(taken))):
                rows.writerow([f"u{user}", f"s{item}", time, shop(item)])
    (folder / "fairhorizon.toml").write_text(FILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


def change(folder: Path, old: str, new: str) -> None:
    file = folder / "fairhorizon.toml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def fairhorizon(command: str) -> None:
    assert run(shlex.split(command)) == 0


def card(folder: str = "a") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))
    return found


def one_limit(folder: Path) -> None:
    """The file with a single limit, which joint lists and a quota keep."""
    change(folder, ', "shop=Corner<=0.35"', "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_option(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert any("--config" in one.opts for one in command.params)


def test_a_fit_needs_nothing_but_the_file_and_a_folder(place: Path) -> None:
    one_limit(place)
    fairhorizon("fit --config shop/fairhorizon.toml --out a")
    found = card()
    assert found["data"]["source"] == str(place / "log.csv")
    assert [found["data"][key] for key in ("user", "item", "rating", "timestamp")] == [
        *("buyer", "sku", None, "bought_at")
    ]
    assert (found["method"], found["seed"], found["limits"]) == (
        *("ease+lists", 3, ["popular<=0.4"]),
    )
    assert found["ranker"]["config"]["l2"] == 300
    assert found["reranker"]["config"]["share"] == 0.4
    assert found["reranker"]["config"]["spread"] == 0.9


def test_what_is_typed_wins(place: Path) -> None:
    one_limit(place)
    fairhorizon(
        "fit --config shop/fairhorizon.toml --out a --seed 5 --set l2=20 --limit shop=Mega<=0.3 "
        "--separator ,"
    )
    found = card()
    assert (found["seed"], found["limits"]) == (5, ["shop=Mega<=0.3"])
    # a setting that is typed leaves the others of the file
    assert found["ranker"]["config"]["l2"] == 20
    assert found["reranker"]["config"]["spread"] == 0.9
    assert found["data"]["separator"] == ","


@pytest.mark.parametrize("typed", ["--alpha-prime 0.3", "ease+lists@0.3"])
def test_a_typed_level_takes_the_place_of_the_limit_on_its_group(typed: str, place: Path) -> None:
    one_limit(place)
    fairhorizon(f"fit {typed} --config shop/fairhorizon.toml --out a")
    assert not card()["limits"]
    assert card()["reranker"]["config"]["share"] == 0.3


def test_a_typed_limit_takes_the_place_of_the_level_in_the_file(place: Path) -> None:
    change(place, '"ease+lists"', '"ease+lists@0.5"')
    fairhorizon("fit --config shop/fairhorizon.toml --limit popular<=0.2 --out a")
    assert card()["limits"] == ["popular<=0.2"]
    assert card()["reranker"]["config"]["share"] == 0.2


def test_settings_are_those_of_the_method_in_the_file(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_limit(place)
    fairhorizon("fit itemknn+quota --config shop/fairhorizon.toml --out a")
    assert capsys.readouterr().err.splitlines()[-1] == (
        "note: the settings in shop/fairhorizon.toml are for ease+lists, not for itemknn+quota"
    )
    assert card()["method"] == "itemknn+quota"


def test_a_table_of_items_is_ignored_where_nothing_asks_for_it(place: Path) -> None:
    one_limit(place)
    change(place, "[settings]", '[groups]\nitem_table = "none.csv"\n[settings]')
    fairhorizon("fit --config shop/fairhorizon.toml --out a")
    assert card()["data"]["item_table"] is None
    assert run(shlex.split("fit --config shop/fairhorizon.toml --limit size=L<=0.3 --out b")) == 1


def test_a_typed_group_column_drops_the_values_of_the_file(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_limit(place)
    change(place, "[settings]", '[groups]\ncolumn = "shop"\nsensitive = ["Mega"]\n[settings]')
    change(place, "popular<=0.4", "shop=Mega<=0.4")
    fairhorizon("fit --config shop/fairhorizon.toml --out a")
    assert card()["data"]["sensitive_values"] == ["Mega"]
    assert card()["reranker"]["config"]["share"] == 0.4
    fairhorizon("fit --config shop/fairhorizon.toml --sensitive Corner --alpha-prime 0.3 --out b")
    assert card("b")["data"]["sensitive_values"] == ["Corner"]
    assert run(shlex.split("fit --config shop/fairhorizon.toml --group-column sku --out c")) == 1
    assert "a group column and its sensitive values go together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ties", "typed", "stored"),
    [
        ('"keep"', "", "keep"),
        ("7", "", 7),
        ("7", "--keep-ties", "keep"),
        ('"keep"', "--shuffle-ties 2", 2),
    ],
)
def test_the_order_of_ties(ties: str, typed: str, stored: object, place: Path) -> None:
    one_limit(place)
    change(place, "[columns]", f"ties = {ties}\n[columns]")
    fairhorizon(f"fit --config shop/fairhorizon.toml {typed} --out a")
    assert card()["data"]["ties"] == stored


def test_a_run_is_served_under_the_limits_of_the_file(place: Path) -> None:
    one_limit(place)
    fairhorizon("fit --config shop/fairhorizon.toml --out a")
    change(place, "popular<=0.4", "shop=Corner<=0.2")
    fairhorizon("evaluate a --config shop/fairhorizon.toml --k 5 --json m.json")
    (found,) = json.loads(Path("m.json").read_text(encoding="utf-8"))["limits"]
    assert found["limit"] == "shop=Corner<=0.2"
    assert found["kept"]
    fairhorizon("recommend a --config shop/fairhorizon.toml --k 5 --out lists.csv")
    with Path("lists.csv").open(encoding="utf-8", newline="") as file:
        items = [int(row["item"][1:]) for row in csv.DictReader(file)]
    assert sum(shop(item) == "Corner" for item in items) <= 0.2 * len(items)
    fairhorizon("audit lists.csv --config shop/fairhorizon.toml --k 5 --json audit.json")
    (again,) = json.loads(Path("audit.json").read_text(encoding="utf-8"))["rows"][0]["limits"]
    assert again["reached"] == found["reached"]


def test_studies_take_the_settings_of_the_method(place: Path) -> None:
    fairhorizon(
        f"compare --config {place.name}/fairhorizon.toml --methods ease+lists@0.4,itemknn "
        "--seeds 1 --jobs 1 --k 5 --out study --json rows.json"
    )
    rows = json.loads(Path("rows.json").read_text(encoding="utf-8"))["rows"]
    settings = {row["method"]: row["settings"] for row in rows}
    assert settings["ease+lists@0.4"]["l2"] == 300
    assert settings["ease+lists@0.4"]["lists"]["spread"] == 0.9
    page = Path("study/index.html").read_text(encoding="utf-8")
    assert "--config shop/fairhorizon.toml" in page


def test_levels_takes_the_limits_that_levels_can_be(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fairhorizon(
        f"levels --config {place.name}/fairhorizon.toml --methods ease+lists --seeds 1 "
        "--jobs 1 --k 5 --tries 0 --out study --json rows.json"
    )
    assert (
        "note: of the file, 'shop=Corner<=0.35': the levels are those of popular (compare one "
        "group at a time); left out"
    ) in capsys.readouterr().err.splitlines()
    rows = json.loads(Path("rows.json").read_text(encoding="utf-8"))["rows"]
    assert {row["limit"] for row in rows} == {"popular<=0.4"}


def test_information_on_the_data_of_the_file(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fairhorizon(f"data info --config {place / 'fairhorizon.toml'}")
    numbers = capsys.readouterr().out.split()
    assert [str(USERS), str(ITEMS - 1), "10.00"] == numbers[numbers.index(str(USERS)) :][:3]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "fit --out a",
            "Missing argument 'method'. (give it, or method in a --config FILE; see fairhorizon "
            "fit --help)",
        ),
        (
            "fit ease --out a",
            "Missing option '--data'. (give it, or [data] source in a --config FILE; see "
            "fairhorizon fit --help)",
        ),
        (
            "data info",
            "Missing argument 'source'. (give it, or [data] source in a --config FILE; see "
            "fairhorizon data info --help)",
        ),
        (
            "fit --config shop/fairhorizon.toml",
            "Missing option '--out'. (see fairhorizon fit --help)",
        ),
    ],
)
def test_what_neither_has_is_named(
    command: str, message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.exists()
    assert run(shlex.split(command)) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "seed = 3",
            "sede = 3",
            "shop/fairhorizon.toml line 2: there is no key sede (is it seed?)",
        ),
        (
            "popular<=0.4",
            "popular<=40",
            "shop/fairhorizon.toml line 3: limit 1: 'popular<=40', position 10: '40' is no share "
            "(give a number from 0 to 1, not a percentage)",
        ),
    ],
)
def test_a_fault_of_the_file_is_one_line(
    old: str, new: str, message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(place, old, new)
    assert run(shlex.split("audit lists.csv --config shop/fairhorizon.toml")) == 1
    assert capsys.readouterr().err == f"error: {message}\n"


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "--config", "none.toml", "--out", "a"]) == 1
    assert capsys.readouterr().err.startswith("error: none.toml: No such file or directory")


def test_the_share_of_popular_items(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_limit(place)
    change(place, "[settings]", "[groups]\npopular_share = 0.5\n[settings]")
    fairhorizon("fit --config shop/fairhorizon.toml --out a")
    assert capsys.readouterr().err.splitlines()[-1] == (
        "note: popular_share in shop/fairhorizon.toml is for fcpo and audit: here a share of 0.2 "
        "of the items is popular"
    )
    fairhorizon("recommend a --k 5 --out lists.csv")
    for share, option in ((0.5, ""), (0.2, "--popular-share 0.2")):
        fairhorizon(f"audit lists.csv --config shop/fairhorizon.toml {option} --k 5 --json m.json")
        found = json.loads(Path("m.json").read_text(encoding="utf-8"))
        assert found["rows"][0]["limits"][0]["kept"] is (share == 0.2)


def test_sessions_weights_and_areas(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `init` writes of a log of sessions, with the width of areas added."""
    init = "init shop/log.csv --session buyer --weight rows --out shop/visits.toml"
    assert run(shlex.split(init)) == 0
    file = place / "visits.toml"
    written = file.read_text(encoding="utf-8")
    assert 'session = "buyer"\nitem = "sku"' in written
    assert 'weight = "rows"' in written
    assert "user =" not in written
    file.write_text(written + "\n[groups]\narea_km = 20\n", encoding="utf-8")
    assert run(shlex.split("fit ease+lists --config shop/visits.toml --out visits")) == 0
    data = json.loads(Path("visits/run.json").read_text(encoding="utf-8"))["data"]
    assert (data["user"], data["session"], data["weight"]) == (None, "buyer", "rows")
    assert data["area_km"] == 20
    capsys.readouterr()
    assert run(shlex.split("data info --config shop/visits.toml --user buyer")) == 0  # typed wins
    assert "Users are sessions" not in capsys.readouterr().out
    users = place / "users.csv"
    users.write_text("buyer,age\nu4,30\nu2,41\n", encoding="utf-8")
    assert run(shlex.split("recommend visits --users shop/users.csv --k 3 --out lists.csv")) == 0
    with Path("lists.csv").open(encoding="utf-8") as lists:
        assert [row["user"] for row in csv.DictReader(lists)] == ["u4"] * 3 + ["u2"] * 3
