"""fairhorizon.toml: what is read, and that every fault is said with file, line and key."""

from pathlib import Path

import pytest

from fairhorizon.config_file import read_config
from fairhorizon.errors import ConfigError

WHOLE = """\
method = "fcpo"
limits = [
    "popular<=0.4",
    "seller=Corner>=0.3",
]
seed = 7
cache_dir = "cache"

[data]
source = "logs/log.csv"
split = "time"
ties = 3

[columns]
user = "buyer"
item = 1
time = "at"
weight = "rows"

[groups]
column = "seller"
sensitive = ["MegaMart", "A & B"]
popular_share = 0.1
area_km = 20
item_table = "items.csv"

[settings]
rounds = 50
ease.half_life = 5

[settings.itemknn]
k = 20
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "fairhorizon.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_all_keys_are_read_and_paths_are_those_of_the_file(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, WHOLE))
    assert config.method == "fcpo"
    assert config.limits == ("popular<=0.4", "seller=Corner>=0.3")
    assert config.seed == 7
    assert config.cache_dir == str(tmp_path / "cache")
    assert config.data.source == str(tmp_path / "logs/log.csv")
    assert (config.data.split, config.data.ties) == ("time", 3)
    assert config.columns.model_dump() == {
        **{"user": "buyer", "item": 1, "rating": None, "time": "at"},
        **{"weight": "rows", "session": None},
    }
    assert config.groups.area_km == 20
    assert config.groups.sensitive == ("MegaMart", "A & B")
    assert config.groups.item_table == str(tmp_path / "items.csv")
    assert config.settings == {"rounds": 50, "ease": {"half_life": 5}, "itemknn": {"k": 20}}


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, "# nothing yet\n"))
    assert config.model_dump(exclude_defaults=True) == {}


@pytest.mark.parametrize("source", ["ml-100k", "synthetic:users=20", "/elsewhere/log.csv"])
def test_names_of_sets_and_absolute_paths_stay(source: str, tmp_path: Path) -> None:
    config = read_config(written(tmp_path, f'[data]\nsource = "{source}"\n'))
    assert config.data.source == source


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('\nmetod = "fcpo"', " line 2: there is no key metod (is it method?)"),
        (
            "[data]\nfile = 3",
            " line 2: there is no key data.file (there are source, header, separator, encoding, "
            "drop_incomplete, split, ties)",
        ),
        (
            '[columns]\nuser = "a"\ntimestmp = "b"',
            " line 3: there is no key columns.timestmp (is it time?)",
        ),
        ('columns.usr = "a"', " line 1: there is no key columns.usr (is it user?)"),
        ("[colums]\n", " line 1: there is no key colums (is it columns?)"),
        ("seed = 1\ndata = {surce = 1}", " line 2: there is no key data.surce (is it source?)"),
        ("[data]\nsource = 3", " line 2: data.source = 3 (give text)"),
        ('data = "log.csv"', " line 1: data = 'log.csv' (give a table, [data])"),
        (
            'limits = "popular<=0.4"',
            ' line 1: limits = \'popular<=0.4\' (give a list of texts, as in ["a", "b"])',
        ),
        ("limits = [0.4]", " line 1: limits = 0.4 (give text)"),
        ("seed = -1", " line 1: seed = -1 (give at least 0)"),
        (
            "[groups]\npopular_share = 20",
            " line 2: groups.popular_share = 20 (give a number below 1)",
        ),
        (
            '[groups]\nsensitive = ["a,b"]',
            " line 2: groups.sensitive = 'a,b' (give values without commas)",
        ),
        ("[columns]\nuser = 1.5", " line 2: columns.user = 1.5 (give text or a whole number)"),
        (
            'seed = 3\nlimits = [\n  "popular<=0.4",\n  "seller<0.3"\n]',
            " line 4: limit 2: 'seller<0.3', position 1: 'seller' is no group (give popular, "
            "new, gini, COLUMN=VALUE, COLUMN:each or COLUMN:30d)",
        ),
        (
            "seed = 3\nmethod fcpo",
            " line 2: not TOML: Expected '=' after a key in a key/value pair (see docs/config.md "
            "for the form of the file)",
        ),
    ],
)
def test_a_fault_is_said_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    assert str(caught.value) == f"{file}{message}"


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "fairhorizon.toml"
    file.write_bytes('method = "ä"'.encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_config(file)
