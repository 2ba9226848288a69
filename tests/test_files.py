"""Files appear whole or not at all."""

import json
from pathlib import Path

import pytest

from fairhorizon.files import write_atomically, write_json


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write_json(path, {"x": 1})

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert json.loads(path.read_text()) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["f.json"]


def test_json_is_strict(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "f.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []
