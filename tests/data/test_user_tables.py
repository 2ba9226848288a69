"""Columns of a table with a row per user."""

from pathlib import Path

import pytest

from fairhorizon.data.loading import load
from fairhorizon.data.user_tables import user_cells, users_beside
from fairhorizon.errors import DataError, NoColumnError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = "7\t1\t1\n8\t1\t2\n9\t2\t3\n"
    (tmp_path / "films.inter").write_text("user_id:token\titem_id:token\ttimestamp:float\n" + rows)
    users = "user_id:token\tage:token\tgender:token\n9\t24\tF\n7\t53\t\n1\t30\tM\n"
    (tmp_path / "films.user").write_text(users)
    return tmp_path


def test_cells_are_in_the_order_of_the_log(folder: Path) -> None:
    log, table = load(folder), users_beside(folder)
    assert table == folder / "films.user"
    assert user_cells(table, "age", log).tolist() == ["53", "", "24"]  # of users 7, 8, 9
    assert user_cells(table, "gender", log).tolist() == ["", "", "F"]
    with pytest.raises(NoColumnError, match="'age', 'gender'"):
        user_cells(table, "city", log)


def test_a_table_of_another_kind_may_call_the_user_as_the_log_does(folder: Path) -> None:
    log, table = load(folder), folder / "people.csv"
    table.write_text("who,city\n8,Rome\n7,Oslo\n")
    assert user_cells(table, "city", log, user="who").tolist() == ["Oslo", "Rome", ""]
    with pytest.raises(DataError, match="no column looks like the user"):
        user_cells(table, "city", log)


def test_where_no_table_is(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item\n1,2\n")
    assert users_beside(tmp_path) is None
    assert users_beside(tmp_path / "log.csv") is None
    assert users_beside("ml-100k") is None
