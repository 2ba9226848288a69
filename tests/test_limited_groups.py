"""Who a limit is about: values of a column of the log or of an item table, and reserved words."""

from pathlib import Path

import pytest

from fairhorizon.datasets import DataSpec, bound_limits
from fairhorizon.errors import ConfigError
from fairhorizon.limits.language import Limit, LimitError
from fairhorizon.limits.resolved import ResolvedLimit

# item: genres, seller; item 5 is taken last, by user 1 alone, and so is no part of the training log
ITEMS = {
    1: ("Drama|War", "MegaMart"),
    2: ("Drama", "A & B"),
    3: ("War", "MegaMart"),
    4: ("", "Corner"),
    5: ("Comedy", "Corner"),
}
TAKEN = {1: (1, 2, 3, 4, 5), 2: (1, 2, 3, 4), 3: (1, 3, 2, 4), 4: (1, 2, 4, 3)}


@pytest.fixture
def log(tmp_path: Path) -> DataSpec:
    rows = [
        f"{user},{item},{time},{ITEMS[item][0]},{ITEMS[item][1]}"
        for user, items in TAKEN.items()
        for time, item in enumerate(items)
    ]
    file = tmp_path / "log.csv"
    file.write_text("user,item,time,genre,seller\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return DataSpec(source=str(file), ties="keep")


@pytest.fixture
def table(tmp_path: Path) -> str:
    file = tmp_path / "items.csv"
    rows = [f"{item},{'dear' if item < 3 else 'cheap'}" for item in ITEMS]
    file.write_text("item,price\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return str(file)


def members(bound: list[ResolvedLimit]) -> dict[str, list[int]]:
    """Item ids by limit."""
    return {str(one): [i + 1 for i in one.members.nonzero()[0].tolist()] for one in bound}


def bind(data: DataSpec, *texts: str, table: str | None = None) -> list[ResolvedLimit]:
    return bound_limits([Limit.parse(text) for text in texts], data, None, table)


def test_an_item_may_have_several_values(log: DataSpec) -> None:
    bound = bind(log, "genre=Drama<=0.3@5", "genre=War>=0.1", "genre=Drama,Comedy<=0.5")
    assert members(bound) == {
        "genre=Drama<=0.3@5": [1, 2],
        "genre=War>=0.1": [1, 3],
        "genre=Drama,Comedy<=0.5": [1, 2, 5],
    }
    assert not any(one.is_dynamic for one in bound)


def test_each_value_has_a_limit_of_its_own(log: DataSpec) -> None:
    assert members(bind(log, "seller:each<=0.4;scope=list")) == {
        '"seller=A & B"<=0.4;scope=list': [2],
        "seller=Corner<=0.4;scope=list": [4, 5],
        "seller=MegaMart<=0.4;scope=list": [1, 3],
    }
    assert [*members(bind(log, "genre:each<=0.4"))] == [
        "genre=Comedy<=0.4",  # an item without a genre is in no group
        "genre=Drama<=0.4",
        "genre=War<=0.4",
    ]


def test_reserved_words(log: DataSpec) -> None:
    bound = bind(log, "popular<=0.4", "new>=0.1", "gini<=0.8")
    assert members(bound) == {
        "popular<=0.4": [1],  # a fifth of the items
        "new>=0.1": [5],
        "gini<=0.8": [1, 2, 3, 4, 5],
    }
    assert [one.is_dynamic for one in bound] == [True, False, False]
    (larger,) = bound_limits([Limit.popular(0.4)], log, None, popular_share=0.4)
    assert larger.members.tolist() == [True, True, False, False, False]


def test_columns_of_a_table_of_items(log: DataSpec, table: str) -> None:
    assert members(bind(log, "price=dear<=0.3", table=table)) == {"price=dear<=0.3": [1, 2]}


def test_what_there_is_not(log: DataSpec, table: str) -> None:
    for limit, of_table, message in [
        (
            "sellr=MegaMart<=0.2",
            None,
            f"{log.source}: no column 'sellr'; there are genre, seller (name one, or give the "
            "--item-table that has it)",
        ),
        ("seller=MegaMart<=0.2", table, f"{table}: no column 'seller'; there are price"),
        (
            "seller=Mega<=0.2",
            None,
            "no item has the attribute value 'Mega' (the values are A & B, Corner, MegaMart)",
        ),
    ]:
        with pytest.raises(LimitError) as error:
            bind(log, "popular<=0.4", limit, table=of_table)
        assert str(error.value) == f"'{limit}': {message}"


def test_data_without_columns() -> None:
    with pytest.raises(LimitError) as error:
        bind(DataSpec(source="synthetic:users=20,items=20"), "genre:each<=0.2")
    assert str(error.value) == (
        "'genre:each<=0.2': synthetic:users=20,items=20: no column 'genre'; there are none (name "
        "one, or give the --item-table that has it)"
    )


@pytest.mark.parametrize(
    "texts",
    [("popular<=0.4", "popular<=.40"), ("seller:each<=0.2", "seller=Corner<=0.2")],
)
def test_doubles(log: DataSpec, texts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"<=0\.\d is given twice \(give it once\)"):
        bind(log, *texts)
    bind(log, texts[0], "popular<=0.3", "seller=Corner<=0.3@5")  # other limits on the same group
