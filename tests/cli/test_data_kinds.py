"""Logs of other kinds by the command line: what info says, limits on areas, what runs keep."""

import json
from pathlib import Path

import polars as pl
import pytest

from fairhorizon.cli.app import run
from fairhorizon.data.example_logs import checkins
from fairhorizon.data.locations import area_names

SHOP = ("--user=customer", "--item=sku", "--timestamp=ordered")
VENUES = ("--item=venue", "--weight=rows")


def fairhorizon(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(kind: str, name: str) -> pl.DataFrame:
    fairhorizon("data", "example", kind, "--out", name, "--seed", 1)
    return pl.read_csv(name)


@pytest.mark.usefixtures("folder")
def test_info_says_what_kind_of_log_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    frame = example("shop", "shop.csv")
    total, pairs = frame["quantity"].sum(), frame.unique(["customer", "sku"]).height
    fairhorizon("data", "info", "shop.csv", *SHOP, "--weight=quantity")
    said = capsys.readouterr().out
    assert f"shop.csv: {len(frame):,} rows of customer, sku, quantity, ordered, seller\n" in said
    assert f"Weights: {total:,} in all, 3 at the median of a user and item; " in said
    assert f"{len(frame) - pairs:,} rows repeat others, and their weights add up.\n" in said
    example("checkins", "venues.csv")
    fairhorizon("data", "info", "venues.csv", *VENUES, "--area-km=20")
    assert "Coordinates: of 100 of 100 items, in 5 areas of 20 km.\n" in capsys.readouterr().out
    example("sessions", "views.csv")
    fairhorizon("data", "info", "views.csv", "--session=session", "--item=article")
    said = capsys.readouterr().out
    assert "Users are sessions, of column session: the next one is a new user.\n" in said
    assert "Weights" not in said


def test_a_run_keeps_weights_and_areas(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit on an area holds in the lists, and the run knows how to read the log again."""
    frame = example("checkins", "venues.csv")
    truth = checkins(seed=1)
    areas = area_names(frame["latitude"].to_numpy(), frame["longitude"].to_numpy(), 20.0)
    of_venue = dict(zip(frame["venue"], areas, strict=True))
    area = of_venue["v0"]
    how = (*VENUES, "--area-km=20", "--split=time")
    limit = f"--limit=area={area}<=0.1"
    fairhorizon("fit", "itemknn+lists", "--data=venues.csv", *how, limit, "--out=run")
    data = json.loads((folder / "run" / "run.json").read_text())["data"]
    assert (data["weight"], data["area_km"]) == ("rows", 20.0)
    assert not data["session"]
    fairhorizon("recommend", "run", "--k=5", "--out=lists.csv")
    lists = pl.read_csv("lists.csv")["item"].to_list()
    share = sum(of_venue[item] == area for item in lists) / len(lists)
    assert share <= 0.1
    assert share > 0.05
    fairhorizon("audit", "lists.csv", "--data=venues.csv", *how, limit, "--k=5", "--json=a.json",
                "--providers=area")  # fmt: skip
    found = json.loads((folder / "a.json").read_text())
    assert found["verdicts"][0]["kept"]
    assert found["rows"][0]["limits"][0]["reached"] == pytest.approx(share)
    city = {of_venue[f"v{n}"]: int(truth.city[n]) for n in range(100) if f"v{n}" in of_venue}
    assert {one["provider"] for one in found["providers"]} == set(city)
    grouped = ("--group-column=area", f"--sensitive={area}", "--k=5")
    capsys.readouterr()
    fairhorizon("audit", "lists.csv", "--data=venues.csv", *how, *grouped, "--json=b.json")
    rate = json.loads((folder / "b.json").read_text())["rows"][0]["metrics"]["popularity_rate@5"]
    assert rate == pytest.approx(share)


def test_coordinates_in_a_table_of_items(folder: Path) -> None:
    frame = example("checkins", "venues.csv")
    frame.unique("venue").select("venue", "latitude", "longitude").write_csv("items.csv")
    frame.drop("latitude", "longitude").write_csv("log.csv")
    (folder / "lists.csv").write_text("user,item\nu1,v0\nu1,v1\n")
    table = folder / "items.csv"
    table.write_text(table.read_text().replace("venue", "item", 1))
    options = ("--item-table=items.csv", "--limit=area:each<=1", "--area-km=20", "--k=2")
    fairhorizon("audit", "lists.csv", "--data=log.csv", *VENUES, *options, "--json=a.json")
    (row,) = json.loads((folder / "a.json").read_text())["rows"]
    assert len(row["limits"]) == 5
    assert sum(one["reached"] for one in row["limits"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weight=price"], "there is no column 'price'"),
        (["--session=customer"], "user 'customer' and session 'customer': who is served? (give"),
        (["--weight=seller"], "seller 's4' is not a number"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    example("shop", "shop.csv")
    assert run(["data", "info", "shop.csv", *SHOP, *options]) == 1
    assert message in capsys.readouterr().err


def test_an_area_without_coordinates(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example("shop", "shop.csv")
    (folder / "lists.csv").write_text("user,item\nc1,p1\n")
    words = ["audit", "lists.csv", "--data=shop.csv", *SHOP, "--weight=quantity", "--k=1"]
    assert run([*words, "--limit=area:each<=0.5"]) == 1
    assert "no column 'area'; there are seller" in capsys.readouterr().err


def test_a_large_log_is_written_in_parts_and_info_counts_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRHORIZON_CACHE", str(folder / "cache"))
    source = "synthetic-large:users=50,items=300,interactions=1000,seed=2"
    fairhorizon("data", "generate", source, "--out=log.csv")
    assert "log.csv: 1,000 rows of 50 users and 300 items\n" in capsys.readouterr().out
    fairhorizon("data", "generate", source, "--out=log", "--parts=3", "--format=csv")
    assert [path.name for path in sorted((folder / "log").iterdir())] == [
        *("part-0001.csv", "part-0002.csv", "part-0003.csv")
    ]
    capsys.readouterr()
    fairhorizon("data", "info", "log")
    assert "3 parts: 3 read, 0 from the cache.\n" in capsys.readouterr().out
    fairhorizon("data", "info", "log")
    assert "3 parts: 0 read, 3 from the cache.\n" in capsys.readouterr().out
    fairhorizon("fit", "popularity", "--data=log", "--out=run")
    assert run(["data", "generate", "ml-100k", "--out=log.csv"]) == 2
    assert run(["data", "generate", source, "--out=folder"]) == 2


@pytest.mark.filterwarnings("always::fairhorizon.data.interactions.MissingValuesWarning")
def test_rows_with_empty_cells_are_left_out_by_option_and_by_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"u{n % 7},{f's{n // 7}' if n % 9 else ''},{n}" for n in range(70)]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["user,item,time", *rows]), encoding="utf-8")
    config = tmp_path / "fairhorizon.toml"
    config.write_text('[data]\nsource = "log.csv"\ndrop_incomplete = true\n', encoding="utf-8")
    assert run(["data", "info", str(log)]) == 1
    refused = capsys.readouterr().err
    assert "log.csv line 2: item is missing; 8 rows have an empty cell of 70" in refused
    assert run(["data", "info", str(log), "--drop-incomplete"]) == 0
    assert "8 rows of 70 left out" in capsys.readouterr().err
    run_folder = str(tmp_path / "run")
    for command in (
        ["fit", "popularity", "--config", str(config), "--out", run_folder],
        ["recommend", run_folder, "--k", "2", "--out", str(tmp_path / "lists.csv")],
    ):
        assert run(command) == 0
        assert "8 rows of 70 left out" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_atomic_files_and_a_split_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of items names the groups of a limit; a written split is the same again."""
    lines = [f"{u}\t{(u * 7 + n * 3) % 20}\t{n}" for u in range(12) for n in range(10)]
    header = "user_id:token\titem_id:token\ttimestamp:float"
    (tmp_path / "films").mkdir()
    (tmp_path / "films/films.inter").write_text("\n".join([header, *lines]) + "\n")
    items = [f"{item}\t{'Drama War' if item % 2 else 'Comedy'}" for item in range(20)]
    table = "\n".join(["item_id:token\tclass:token_seq", *items]) + "\n"
    (tmp_path / "films/films.item").write_text(table)
    fairhorizon("data", "info", "films")
    assert "Columns of its items: class.\n" in capsys.readouterr().out
    fairhorizon("data", "split", "films", "--out", "parts")
    compared = ("compare", "--methods=popularity", "--seeds=1", "--k=5", "--keep-ties")
    fairhorizon(*compared, "--data=parts", "--split=given", "--out=given", "--json=given.json")
    limit = "--limit=class=War<=0.4"
    users = [f"{user}\t{'F' if user < 5 else 'M'}" for user in range(12)]
    table = "\n".join(["user_id:token\tgender:token", *users]) + "\n"
    (tmp_path / "films/films.user").write_text(table)
    by_gender = "--user-groups=gender"
    fairhorizon(*compared, "--data=films", limit, by_gender, "--out=whole", "--json=whole.json")
    given, whole = (json.loads(Path(f"{name}.json").read_text()) for name in ("given", "whole"))
    assert given["rows"][0]["metrics"] == whole["rows"][0]["metrics"]
    assert given["rows"][0]["metrics"]["ndcg@5"]["mean"] > 0
    assert whole["limit_rows"][0]["limit"] == "class=War<=0.4"
    women, men = whole["user_groups"]
    assert [(one["group"], one["users"]) for one in (women, men)] == [("F", 5), ("M", 7)]
    mean = (5 * women["mean"] + 7 * men["mean"]) / 12
    assert mean == pytest.approx(whole["rows"][0]["metrics"]["ndcg@5"]["mean"])
    assert women["low"] < women["difference"] == -men["difference"] < women["high"]
    assert "popularity,F,5," in (tmp_path / "whole/users.csv").read_text()
