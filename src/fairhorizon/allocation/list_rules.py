"""Limits on every list of a step: which classes of items a list may have at its next place."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairhorizon.allocation.class_program import Floats
from fairhorizon.exposure.counts import Counts
from fairhorizon.exposure.step_limits import StepLimit


class ListRules:
    """The fewest and most items of a group among the first places of every list."""

    def __init__(self, limits: Sequence[StepLimit], patterns: Floats, length: int) -> None:
        self.shape = patterns.shape[1]
        self.rules: list[tuple[int, NDArray[np.bool_], Counts, Counts]] = []
        self.ends: list[int] = []  # of each rule, the places that it is about
        for j, limit in enumerate(limits):
            bounds = limit.most_in_list(length)
            if bounds is not None:
                self.rules.append((j, patterns[j] != 0, *bounds))
                self.ends.append(int(np.count_nonzero(limit.weights(length))))

    def barred(self, inside: Counts, place: int) -> NDArray[np.bool_] | None:
        """(b, C): what a list with these many items of each group (b, m) may not have next."""
        if not self.rules:
            return None
        barred = np.zeros((len(inside), self.shape), dtype=np.bool_)
        for (j, in_group, fewest, most), end in zip(self.rules, self.ends, strict=True):
            if place >= end:  # what comes later may be anything
                continue
            barred |= (inside[:, j] >= most[place])[:, None] & in_group
            barred |= (inside[:, j] < fewest[place])[:, None] & ~in_group
        return barred
