"""What the demonstration found: methods at some levels of the limit, and a short long run."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairhorizon.studies.long_rows import LongTermResult
from fairhorizon.studies.rows import SummaryRow
from fairhorizon.vocabulary import POPULAR


@dataclass(frozen=True)
class DemoResult:
    """All that the page of the demonstration shows."""

    rows: tuple[SummaryRow, ...]  # of one seed, in the order of the table
    paper_rounds: int  # of training that fcpo:paper had
    found: tuple[str, ...]  # by the fit of fcpo, about the log
    exposure: Mapping[str, NDArray[np.int64]]  # (n_items,) showings in the lists, by method
    training: NDArray[np.int64]  # (n_items,) how often each item is in the training log
    sensitive: NDArray[np.bool_]  # (n_items,) G0
    long_run: LongTermResult
    group: str = POPULAR  # the name of G0

    @property
    def dataset(self) -> str:
        return self.rows[0].dataset

    @property
    def levels(self) -> tuple[float, ...]:
        """The limits, from the loosest to the strictest."""
        return tuple(sorted({row.alpha_prime for row in self.rows} - {1.0}, reverse=True))
