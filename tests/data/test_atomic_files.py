"""RecBole's atomic files: the log, and the columns of the table of items beside it."""

from pathlib import Path

import pytest

from fairhorizon.data.atomic_files import atomic_file, table_beside
from fairhorizon.data.loading import load
from fairhorizon.datasets import DataSpec, item_attribute
from fairhorizon.errors import NoColumnError

INTER = """user_id:token\titem_id:token\trating:float\ttimestamp:float
a\t10\t5\t3
a\t20\t4\t1
b\t10\t3\t2
b\t30\t1\t4
"""
# A quotation mark is part of the text, item 30 has no row, and nobody took item 40.
ITEM = """item_id:token\tmovie_title:token_seq\tclass:token_seq\tprice:float
20\tThe "Best" of\tDrama War\t2.5
10\tToy Story\tComedy\t1
40\tNobody's\tDrama\t3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "films.inter").write_text(INTER)
    (tmp_path / "films.item").write_text(ITEM)
    (tmp_path / "films.user").write_text("user_id:token\tage:token\na\t24\nb\t53\n")
    return tmp_path


@pytest.mark.parametrize("name", ["", "films.inter"])
def test_columns_of_the_table_are_columns_of_the_log(folder: Path, name: str) -> None:
    log = load(folder / name)
    assert log.name == "films.inter"
    assert log.item_ids.tolist() == [10, 20, 30]
    assert log.items.tolist() == [1, 0, 0, 2]  # in time order
    assert log.ratings.tolist() == [4, 3, 5, 1]
    assert list(log.further) == ["movie_title", "class", "price"]
    assert log.further["class"].tolist() == ["Comedy", "Drama|War", ""]
    assert log.further["movie_title"].tolist() == ["Toy Story", 'The "Best" of', ""]
    assert "age" not in log.further


def test_a_limit_counts_an_item_for_each_value(folder: Path) -> None:
    (folder / "films.item").write_text(ITEM + "30\tHeat\tWar Crime\t2\n")
    spec = DataSpec(source=str(folder), group_column="class", sensitive_values=("War",))
    assert spec.open().sensitive.tolist() == [False, True, True]
    prices = item_attribute(spec, None, "price", None)
    assert prices.tolist() == ["1", "2.5", "2"]


def test_an_item_without_a_row_is_in_no_group_and_a_note_says_so(folder: Path) -> None:
    with pytest.warns(UserWarning, match="1 item has no class of 3"):
        log = load(folder, attributes=["class"])
    assert list(log.attributes) == ["class"]


def test_a_column_that_is_nowhere_is_named_with_those_there_are(folder: Path) -> None:
    with pytest.raises(NoColumnError, match=r"movie_title.*class.*price"):
        load(folder, attributes=["seller"])


def test_without_a_table_the_log_is_as_before(tmp_path: Path) -> None:
    (tmp_path / "films.inter").write_text(INTER)
    assert load(tmp_path).fingerprint() == load(tmp_path / "films.inter").fingerprint()
    assert not load(tmp_path).further


def test_which_files_belong_together(folder: Path) -> None:
    part = folder / "films.train.inter"
    part.write_text(INTER)
    assert table_beside(part, ".item") == folder / "films.item"
    assert table_beside(folder / "other.inter", ".item") is None
    # A folder with several is a log in parts.
    assert atomic_file(folder) is None
    assert atomic_file(part) == part
