"""Model files are whole, self-describing and refused when they are not."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fairhorizon.errors import ModelError
from fairhorizon.storage import load_model, save_model, write_atomically, write_json

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([True, False])}


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "model.safetensors"
    save_model(path, "toy", TENSORS, {"seed": 3, "name": "ä"})
    tensors, description = load_model(path, "toy")
    assert description == {"seed": 3, "name": "ä"}
    assert torch.equal(tensors["a"], TENSORS["a"])
    assert torch.equal(tensors["b"], TENSORS["b"])
    assert [p.name for p in path.parent.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "m"
    save_model(path, "toy", TENSORS, {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"m: truncated or not a model file.*fit it again"):
        load_model(path, "toy")


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    save_file(TENSORS, path)
    with pytest.raises(ModelError, match="not a FairHorizon model file"):
        load_model(path, "toy")


def test_another_kind_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    save_model(path, "toy", TENSORS, {})
    with pytest.raises(ModelError, match="holds a 'toy' model, not 'fcpo'"):
        load_model(path, "fcpo")
    with pytest.raises(ModelError, match="no such model file"):
        load_model(tmp_path / "none", "fcpo")


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
