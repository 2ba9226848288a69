"""Model files: tensors in a safetensors file whose header carries a JSON description.

One file, so that tensors and description can never belong to different moments.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fairhorizon.errors import ModelError
from fairhorizon.files import write_atomically

_KEY = "fairhorizon"
FORMAT_VERSION = 1


def save_model(path: Path, kind: str, tensors: Mapping[str, Tensor], description: object) -> None:
    """Write a model file of the given kind, for example "fcpo"."""
    header = json.dumps({"kind": kind, "version": FORMAT_VERSION, "description": description})
    dense = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(dense, temporary, metadata={_KEY: header}))


def load_model(path: Path, kind: str) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the description of a model file; a ModelError says what is wrong with it."""
    if not path.is_file():
        raise ModelError(f"{path}: no such model file (fit a model first: fairhorizon fit ...)")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise ModelError(f"{path}: not a FairHorizon model file")
            header = json.loads(metadata[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"{path}: truncated or not a model file: {error} (fit it again)"
        ) from error
    if header.get("version") != FORMAT_VERSION:
        raise ModelError(
            f"{path}: model format {header.get('version')}, "
            f"this version reads {FORMAT_VERSION} (fit it again)"
        )
    if header.get("kind") != kind:
        raise ModelError(f"{path}: holds a '{header.get('kind')}' model, not '{kind}'")
    return tensors, header["description"]
