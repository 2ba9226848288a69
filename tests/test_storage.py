"""Model files are whole, self-describing and refused when they are not."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fairhorizon.errors import ModelError
from fairhorizon.storage import load_model, save_model

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


@pytest.mark.parametrize("version", [0, 2, None])
def test_another_format_is_refused_an_earlier_as_a_later_one(
    tmp_path: Path, version: int | None
) -> None:
    header = json.dumps({"kind": "toy", "version": version, "description": {}})
    save_file(TENSORS, tmp_path / "m", metadata={"fairhorizon": header})
    with pytest.raises(ModelError, match=f"model format {version}, this version reads 1"):
        load_model(tmp_path / "m", "toy")


def test_another_kind_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    save_model(path, "toy", TENSORS, {})
    with pytest.raises(ModelError, match="holds a 'toy' model, not 'fcpo'"):
        load_model(path, "fcpo")
    with pytest.raises(ModelError, match="no such model file"):
        load_model(tmp_path / "none", "fcpo")
