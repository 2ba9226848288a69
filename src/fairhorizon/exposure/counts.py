"""Exposure counts, and the item groups that follow from them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.exposure.groups import popular_group

Counts = NDArray[np.int64]
Grouping = Callable[[Counts], NDArray[np.bool_]]  # counts of all items -> G0


@dataclass(frozen=True)
class Churn:
    """The change that a new grouping made."""

    items: int  # that entered or left G0
    share: float  # of all exposure, the training counts included, that these items hold


class Exposure:
    """What was shown so far, and the group that follows from it.

    Counts begin with those of the training log. A showing is counted under the label that its item
    has at that moment: a later change of group does not change how it was counted.

    history: (n_items,) counts of the training log, `parts.train.item_counts()`.
    grouping: counts of all items -> (n_items,) bool, the group; without it, the popular items.
    """

    def __init__(self, history: Counts, grouping: Grouping = popular_group) -> None:
        self.grouping = grouping
        self.counts = np.array(history, dtype=np.int64)  # (n_items,) training and showings
        self.shown = np.zeros_like(self.counts)  # showings alone
        self.sensitive = torch.from_numpy(grouping(self.counts))  # the present G0
        self.initial = self.sensitive.clone()
        self.n_shown = 0
        self.n_sensitive = 0  # showings of items in G0 at that time
        self.n_initial = 0  # showings of items in the initial G0
        self.n_first, self.n_last = 0, 0  # showings of the first step and of the last one
        self.shrunk = False  # some step had fewer showings than the one before

    @property
    def n_items(self) -> int:
        """The size of the catalogue."""
        return len(self.counts)

    def lasting(self, showings: int) -> int:
        """How many showings every step has had, if the next one has `showings`.

        0 if that step or an earlier one has fewer than the step before it: users have left, and
        more may leave.
        """
        if self.shrunk or showings < self.n_last:
            return 0
        return self.n_first or showings

    def add(self, lists: Tensor) -> None:
        """Count what the `lists` (b, K) of one step show; -1 is an empty slot."""
        items = lists[lists >= 0].cpu()
        times = np.bincount(items.numpy(), minlength=self.n_items)
        self.counts += times
        self.shown += times
        self.n_shown += len(items)
        self.shrunk = self.shrunk or len(items) < self.n_last
        self.n_first, self.n_last = self.n_first or len(items), len(items)
        self.n_sensitive += int(self.sensitive[items].sum())
        self.n_initial += int(self.initial[items].sum())

    def relabel(self) -> Churn:
        """Group the items again, by the present counts; returns what changed."""
        fresh = torch.from_numpy(self.grouping(self.counts))
        changed = (fresh != self.sensitive).numpy()
        self.sensitive = fresh
        total = int(self.counts.sum())
        share = int(self.counts[changed].sum()) / total if total else 0.0
        return Churn(int(changed.sum()), share)
