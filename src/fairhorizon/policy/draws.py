"""Random numbers for the rows of a batch, or for some of its rows."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """Normal draws for some rows of a batch, which are drawn for all of it.

    So the numbers of a row do not depend on which other rows are computed here.
    """

    generator: torch.Generator
    rows: Tensor | None = None  # of the batch; None: all
    size: int = 0  # rows of the batch, where only some are wanted

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers of the shape, type and device of `like`, a row for each."""
        if self.rows is None:
            return torch.randn(like.shape, generator=self.generator).to(like)
        shape = (self.size, *like.shape[1:])
        return torch.randn(shape, generator=self.generator)[self.rows].to(like)
