"""A split of one's own, as three files."""

import re
from pathlib import Path

import numpy as np
import pytest

from fairhorizon.data.interactions import RepeatsWarning
from fairhorizon.data.loading import load, load_split
from fairhorizon.data.log_files import write_split
from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.datasets import DataSpec
from fairhorizon.errors import DataError

HEADER = "user,item,time,seller\n"


def write(folder: Path, **parts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in parts.items():
        (folder / f"{name}.csv").write_text(HEADER + rows)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Item z is in the test part alone, user c in the validation part alone."""
    return write(
        tmp_path / "parts",
        train="a,x,1,big\na,y,2,small\nb,x,1,big\n",
        validation="c,y,3,small\n",
        test="b,y,5,small\na,z,4,big\n",
    )


def pairs(log) -> list[tuple[str, str]]:
    users, items = log.user_ids[log.users], log.item_ids[log.items]
    return list(zip(users.tolist(), items.tolist(), strict=True))


def test_each_file_is_a_part_and_all_have_the_same_codes(folder: Path) -> None:
    parts = load_split(folder)
    assert pairs(parts.train) == [("a", "x"), ("b", "x"), ("a", "y")]  # in time order
    assert pairs(parts.validation) == [("c", "y")]
    assert pairs(parts.test) == [("a", "z"), ("b", "y")]
    for part in (parts.train, parts.validation, parts.test):
        assert part.user_ids.tolist() == ["a", "b", "c"]
        assert part.item_ids.tolist() == ["x", "y", "z"]
        assert part.further["seller"].tolist() == ["big", "small", "big"]


def test_a_pair_counts_in_the_first_part_that_has_it(folder: Path) -> None:
    write(folder, test="a,x,9,big\nb,y,5,small\n")
    with pytest.warns(RepeatsWarning, match="1 row repeats"):
        parts = load_split(folder)
    assert pairs(parts.test) == [("b", "y")]


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    log = synthetic(30, 40, 12, seed=1).interactions
    (tmp_path / "whole").mkdir()
    made = split(log)
    write_split(made, tmp_path / "parts")
    found = load_split(tmp_path / "parts")
    for part in ("train", "validation", "test"):
        one, other = getattr(made, part), getattr(found, part)
        assert pairs(one) == pairs(other)
        assert one.timestamps.tolist() == other.timestamps.tolist()


def test_the_data_of_a_command(folder: Path) -> None:
    spec = DataSpec(
        source=str(folder), cut="given", group_column="seller", sensitive_values=("big",)
    )
    dataset = spec.open()
    assert [len(part) for part in vars(dataset.split).values()] == [3, 1, 2]
    assert len(dataset.log) == 6
    assert dataset.sensitive.tolist() == [True, False, True]


def test_parts_of_recbole(tmp_path: Path) -> None:
    header = "user_id:token\titem_id:token\ttimestamp:float\n"
    for name, rows in (
        ("train", "1\t7\t1\n2\t8\t1\n"),
        ("valid", "1\t8\t2\n"),
        ("test", "2\t7\t3\n"),
    ):
        (tmp_path / f"films.{name}.inter").write_text(header + rows)
    (tmp_path / "films.item").write_text("item_id:token\tclass:token_seq\n7\tDrama War\n8\tWar\n")
    parts = load_split(tmp_path, attributes=["class"])
    assert [pairs(part) for part in (parts.train, parts.validation, parts.test)] == [
        [(1, 7), (2, 8)],
        [(1, 8)],
        [(2, 7)],
    ]
    assert parts.train.attributes["class"].tolist() == ["Drama|War", "War"]


def test_ties_of_the_training_part_are_shuffled_as_in_every_split(tmp_path: Path) -> None:
    rows = "".join(f"{user},i{item:02},1,big\n" for user in "ab" for item in range(20))
    folder = write(tmp_path / "tied", train=rows, validation="a,v,2,x\n", test="a,w,3,x\n")
    kept, shuffled = load_split(folder, ties="keep"), load_split(folder, ties=1)
    assert kept.train.items.tolist() == [*range(20), *range(20)]
    assert shuffled.train.items.tolist() != kept.train.items.tolist()
    assert np.array_equal(np.sort(shuffled.train.items), np.sort(kept.train.items))


@pytest.mark.parametrize(
    ("remove", "add", "fault"),
    [
        ("test.csv", None, "has no file test"),
        (None, "valid.csv", "validation.csv is validation, too|valid.csv is validation, too"),
    ],
)
def test_files_that_are_no_split_are_refused(folder: Path, remove, add, fault: str) -> None:
    if remove:
        (folder / remove).unlink()
    if add:
        (folder / add).write_text(HEADER + "a,q,1,big\n")
    with pytest.raises(DataError, match=fault):
        load_split(folder)


def test_a_file_is_no_folder(folder: Path) -> None:
    with pytest.raises(DataError, match=re.escape("is no folder with a split")):
        load_split(folder / "train.csv")
    assert len(load(folder)) == 6  # without the option its files are parts of one log
