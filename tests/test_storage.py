"""Model files are whole, self-describing and refused when they are not."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fairhorizon import storage
from fairhorizon.errors import ModelError
from fairhorizon.storage import load_model, rounded_to_half, save_model

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([True, False])}


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "model.safetensors"
    save_model(path, "toy", TENSORS, {"seed": 3, "name": "ä"})
    tensors, description = load_model(path, "toy")
    assert description == {"seed": 3, "name": "ä"}
    assert torch.equal(tensors["a"], TENSORS["a"])
    assert torch.equal(tensors["b"], TENSORS["b"])
    assert [p.name for p in path.parent.iterdir()] == ["model.safetensors"]


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PACKED_FROM", 1)
    monkeypatch.setattr(storage, "ROUNDED_FROM", 1)


@pytest.mark.usefixtures("all_are_large")
@pytest.mark.parametrize("size", [1e-9, 0.37, 1.0, 3e6])
def test_rounded_numbers_come_back_from_two_bytes_each(tmp_path: Path, size: float) -> None:
    exact = size * torch.randn(300, 40, generator=torch.Generator().manual_seed(0)) ** 5
    # Just below a power of two: rounding lifts it.
    exact[7, 7] = 2.0 ** (2 + int(exact.abs().max().log2().ceil())) * (1 - 2**-20)
    rounded = rounded_to_half(exact.clone())
    error = (rounded - exact).abs()
    assert (error <= 2**-11 * exact.abs() + 2**-39 * exact.abs().max()).all()
    assert error.max() > 0
    save_model(tmp_path / "m", "toy", {"weights": rounded}, {})
    tensors, _ = load_model(tmp_path / "m", "toy")
    assert tensors["weights"].dtype == torch.float32
    assert torch.equal(tensors["weights"], rounded)
    assert (tmp_path / "m").stat().st_size < 2 * rounded.numel() + 1000


@pytest.mark.usefixtures("all_are_large")
@pytest.mark.parametrize(
    ("tensor", "size"),
    [
        (torch.tensor([0, -1, 32_767]).repeat(1000), 2),
        (torch.tensor([0, -1, 32_768]).repeat(1000), 4),
        (torch.tensor([0, -(2**40), 7]).repeat(1000), 8),
        (torch.tensor([1.0, 1 + 2**-12]).repeat(1000), 4),
        (torch.tensor([1.0, 2.0**-60]).repeat(1000), 4),
        (torch.tensor([1.0, math.nan, -math.inf]).repeat(1000), 4),
        (torch.tensor([1.0, 1 + 2**-12]).double().repeat(1000), 8),
        (torch.zeros(2000), 2),
    ],
)
def test_a_narrower_type_is_taken_only_where_nothing_is_lost(
    tmp_path: Path, tensor: torch.Tensor, size: int
) -> None:
    save_model(tmp_path / "m", "toy", {"one": tensor, "small": torch.tensor([])}, {})
    (found, _), bytes_of_file = load_model(tmp_path / "m", "toy"), (tmp_path / "m").stat().st_size
    torch.testing.assert_close(found["one"], tensor, rtol=0, atol=0, equal_nan=True)
    assert size * len(tensor) < bytes_of_file < size * len(tensor) + 1000


def test_small_tables_are_not_rounded() -> None:
    table = torch.randn(100, 100)
    assert torch.equal(rounded_to_half(table.clone()), table)


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
