"""Model files: tensors in a safetensors file with a JSON description in its header.

One file, so that tensors and description always belong together. Large tensors are stored in
narrower types where that loses nothing: integers in those that hold them, and numbers that
`rounded_to_half` has made in two bytes each.
"""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fairhorizon.errors import ModelError
from fairhorizon.files import write_atomically
from fairhorizon.settings import faults

_KEY = "fairhorizon"
ALIGNMENT = 64  # bytes, of memory that torch allocates on a CPU
FORMAT_VERSION = 1
PACKED_FROM = 2**20  # cells of a tensor; smaller ones are stored as they are
ROUNDED_FROM = 2**24  # cells: 64 MiB
ROWS_AT_ONCE = 256
HIGHEST = 15  # the largest number of a tensor is just below 2^15, near the end of the range


def save_model(path: Path, kind: str, tensors: Mapping[str, Tensor], description: object) -> None:
    """Write a model file of the given kind, for example "fcpo"."""
    dense, exponents = {}, {}
    for name, tensor in tensors.items():
        dense[name], exponent = _packed(tensor.detach().cpu().contiguous())
        if exponent is not None:
            exponents[name] = exponent
    content = {"kind": kind, "version": FORMAT_VERSION, "description": description}
    header = json.dumps(content | ({"packed": exponents} if exponents else {}))
    write_atomically(path, lambda temporary: _save(dense, temporary, header))


def rounded_to_half(tensor: Tensor) -> Tensor:
    """A large table, in place, of numbers that a file holds in two bytes; small ones stay.

    They have 11 binary digits, and those below 2^-29 of the largest one have fewer. For weights of
    items, of which a score is a sum.
    """
    if tensor.numel() >= ROUNDED_FROM:
        scale = 2.0 ** (HIGHEST - _exponent(tensor))
        for rows in tensor.split(ROWS_AT_ONCE):
            rows.copy_((rows * scale).half().float() / scale)
    return tensor


def _exponent(tensor: Tensor) -> int:
    """Of the smallest power of two above all numbers."""
    return math.frexp(float(tensor.abs().max()))[1]


def _packed(tensor: Tensor) -> tuple[Tensor, int | None]:
    """A tensor as it is stored, and the exponent of its scale; None: as it is."""
    if tensor.numel() < PACKED_FROM:
        return tensor, None
    if tensor.dtype == torch.int64:
        lowest, highest = int(tensor.min()), int(tensor.max())
        for dtype in (torch.int16, torch.int32):
            if torch.iinfo(dtype).min <= lowest and highest <= torch.iinfo(dtype).max:
                return tensor.to(dtype), 0
    if tensor.dtype == torch.float32 and math.isfinite(tensor.abs().max()):
        # Rounding may have lifted the largest number to the next power of two.
        for exponent in (_exponent(tensor), _exponent(tensor) - 1):
            half = (tensor * 2.0 ** (HIGHEST - exponent)).half()
            if torch.equal(_unpacked(half, exponent), tensor):
                return half, exponent
    return tensor, None


def _unpacked(stored: Tensor, exponent: int) -> Tensor:
    """The tensor that was packed."""
    if stored.dtype == torch.float16:
        return stored.float().mul_(2.0 ** (exponent - HIGHEST))
    return stored.long()


def _save(tensors: dict[str, Tensor], path: Path, header: str) -> None:
    """Write the file; a full disk is an OSError, as it is for all other files."""
    try:
        save_file(tensors, path, metadata={_KEY: header})
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def load_model(path: Path, kind: str) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the description of a model file; a ModelError if it is not valid."""
    with _opened(path) as (file, header):
        if header["kind"] != kind:
            raise ModelError(f"{path}: holds a '{header['kind']}' model, not '{kind}'")
        tensors = {name: _aligned(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    for name, exponent in header.get("packed", {}).items():
        tensors[name] = _unpacked(tensors[name], exponent)
    return tensors, header["description"]


def _aligned(tensor: Tensor) -> Tensor:
    """The tensor where torch would have placed it, so that kernels round as they did before."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def model_kind(path: Path) -> str:
    """The kind of model in a file."""
    with _opened(path) as (_, header):
        return str(header["kind"])


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The open file and its header, if it is a model file of this version."""
    if not path.is_file():
        raise ModelError(f"{path}: no such model file (fit a model first: fairhorizon fit ...)")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise ModelError(f"{path}: not a FairHorizon model file")
            header = json.loads(metadata[_KEY])
            if header.get("version") != FORMAT_VERSION:
                raise ModelError(
                    f"{path}: model format {header.get('version')}, "
                    f"this version reads {FORMAT_VERSION} (fit it again)"
                )
            yield file, header
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"{path}: truncated or not a model file: {error} (fit it again)"
        ) from error


def as_bytes(content: dict[str, Any]) -> Tensor:
    """JSON as a tensor, to be stored among others."""
    return torch.tensor(list(json.dumps(content).encode()), dtype=torch.uint8)


def of_bytes(stored: Tensor) -> dict[str, Any]:
    """The content that `as_bytes` stored."""
    content: dict[str, Any] = json.loads(bytes(stored.tolist()))
    return content


def below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a part, without the prefix of the part."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


@contextmanager
def understood(file: Path) -> Iterator[None]:
    """A ModelError for a complete file with content that this version does not write."""
    try:
        yield
    except ValidationError as error:
        raise ModelError(
            f"{file}: holds something unexpected: {faults(error)} (fit it again)"
        ) from error
    except KeyError as error:
        raise ModelError(f"{file}: {error} is missing or unknown (fit it again)") from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{file}: holds something unexpected: {error} (fit it again)") from error
