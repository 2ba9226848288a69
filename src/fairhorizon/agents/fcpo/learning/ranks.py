"""A team of processes, by torch.distributed: gloo between CPUs, NCCL between GPUs."""

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor

from fairhorizon.agents.crew import Meeting
from fairhorizon.agents.fcpo.learning.team import Team


class Ranks(Team):
    """The processes of a meeting, from the time when all of them have come."""

    def __init__(self, meeting: Meeting) -> None:
        self.rank, self.size = meeting.rank, meeting.size
        self.device = torch.device(meeting.device)
        patience = timedelta(seconds=meeting.patience)
        store = dist.TCPStore(  # type: ignore[attr-defined]
            meeting.host, meeting.port, is_master=False, timeout=patience
        )
        dist.init_process_group(
            "nccl" if self.device.type == "cuda" else "gloo",
            store=store,
            rank=self.rank,
            world_size=self.size,
            timeout=patience,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        dist.destroy_process_group()

    def sum(self, parts: Sequence[Tensor]) -> Sequence[Tensor]:
        packed = self._packed(parts)
        dist.all_reduce(packed)
        return _unpacked(packed, parts)

    @torch.no_grad()
    def agree(self, tensors: Sequence[Tensor]) -> None:
        packed = self._packed(tensors)
        dist.broadcast(packed, src=0)
        for tensor, first in zip(tensors, _unpacked(packed, tensors), strict=True):
            tensor.copy_(first)

    def _packed(self, parts: Sequence[Tensor]) -> Tensor:
        """All of them in one message; of different types in float64, which holds their numbers."""
        kinds = {part.dtype for part in parts}
        kind = kinds.pop() if len(kinds) == 1 else torch.float64
        return torch.cat([part.detach().flatten().to(self.device, kind) for part in parts])


def _unpacked(packed: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    pieces = packed.split([part.numel() for part in parts])
    return [piece.view(part.shape).to(part) for piece, part in zip(pieces, parts, strict=True)]
