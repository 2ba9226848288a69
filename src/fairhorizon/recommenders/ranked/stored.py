"""A ranker that was fitted again in a long run, as tensors."""

import json
from typing import Any

import torch
from torch import Tensor

from fairhorizon.rankers.ranker import Ranker

DESCRIPTION = "description"


def ranker_tensors(ranker: Ranker[Any]) -> dict[str, Tensor]:
    """Its fitted values and, as bytes of JSON, its description: a fit may choose settings."""
    text = json.dumps(ranker.description()).encode()
    return ranker.tensors() | {DESCRIPTION: torch.tensor(list(text), dtype=torch.uint8)}


def restored_ranker(tensors: dict[str, Tensor], like: Ranker[Any]) -> Ranker[Any]:
    """The ranker of `ranker_tensors`; `like` has its class."""
    values = {name: value.clone() for name, value in tensors.items() if name != DESCRIPTION}
    description = json.loads(bytes(tensors[DESCRIPTION].tolist()))
    return type(like).from_parts(values, description)
