"""What a study found, as typed rows: all that a report reads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CountsOverTime:
    """How often every item had been seen, and which were in G0, at some steps of a run."""

    steps: NDArray[np.int64]  # (s,)
    counts: NDArray[np.int64]  # (s, n_items) of the training log and of what was shown since
    sensitive: NDArray[np.bool_]  # (s, n_items)
