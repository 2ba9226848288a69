"""Model files: tensors in a safetensors file with a JSON description in its header.

One file, so that tensors and description always belong together.
"""

import json
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


def save_model(path: Path, kind: str, tensors: Mapping[str, Tensor], description: object) -> None:
    """Write a model file of the given kind, for example "fcpo"."""
    header = json.dumps({"kind": kind, "version": FORMAT_VERSION, "description": description})
    dense = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: _save(dense, temporary, header))


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
