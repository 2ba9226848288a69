"""Files appear whole or not at all."""

import json
from pathlib import Path

import pytest

from fairhorizon.files import write_atomically, write_json, write_text


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt("disk full")])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "f.json"
    write_json(path, {"x": 1})

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise error

    with pytest.raises(type(error), match="disk full"):
        write_atomically(path, fail)
    assert json.loads(path.read_text()) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["f.json"]


def test_json_is_strict(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "f.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_text_that_cannot_be_written_leaves_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    write_text(path, "as it was")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, 1000 * "and a half " + "\ud800")
    assert path.read_text() == "as it was"
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
