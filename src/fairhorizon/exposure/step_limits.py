"""Limits in the long run: on the popular group, on a given group, or on the Gini index.

Every limit is linear in one step: showing item i once costs `costs[i]`, and all showings of the
step together may cost `budget`. Costs and budget change from step to step, as labels do.
"""

from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.errors import ConfigError
from fairhorizon.exposure.counts import Exposure


class StepLimit(Interface):
    """A limit on what the run has shown so far, to be kept after every step.

    A class with these five members can be given to `server(limits)` of a method that keeps limits.
    """

    @property
    def name(self) -> str:
        """The name under which its price is recorded."""

    def costs(self, exposure: Exposure) -> Tensor:
        """(n_items,) float32: the present cost of one showing of each item."""

    def budget(self, exposure: Exposure, showings: int) -> float:
        """The total cost that the next `showings` showings may have to keep the limit after them.

        Affine in the number of steps to come; negative where the step has to make up for excess.
        """

    def excess(self, exposure: Exposure) -> float:
        """By how much the run exceeds the limit now: positive where the limit is broken."""

    @property
    def limit_per_showing(self) -> float:
        """The mean cost of a showing that keeps the limit in the long run, as CPO needs it."""


@dataclass(frozen=True)
class PopularityLimit:
    """At most a share of all showings in G0, each counted under the label of its moment.

    share: the largest share of all showings so far, alpha' in the paper.
    warm_up: the step from which the limit holds, for users who stay. The showings of G0 that are
        allowed until then can be used at any step of the warm-up. Where users may leave, use 0.
    name: what the price of the limit is recorded under.
    """

    share: float  # alpha'
    warm_up: int = 0
    name: str = "popularity"

    def __post_init__(self) -> None:
        _check(self.name, self.share, self.warm_up)

    def costs(self, exposure: Exposure) -> Tensor:
        return exposure.sensitive.float()

    def budget(self, exposure: Exposure, showings: int) -> float:
        return _allowed(self.share, self.warm_up, exposure, showings) - exposure.n_sensitive

    def excess(self, exposure: Exposure) -> float:
        return _share(exposure.n_sensitive, exposure, self.share)

    @property
    def limit_per_showing(self) -> float:
        return self.share


@dataclass(frozen=True, eq=False)
class GroupLimit:
    """At most a share of all showings from a fixed group of items.

    name: of the group; the price of the limit is recorded under it.
    members: (n_items,) bool, True for items of the group.
    share: the largest share of all showings so far.
    warm_up: the step from which the limit holds, as in `PopularityLimit`.
    """

    name: str
    members: Tensor  # (n_items,) bool
    share: float
    warm_up: int = 0

    def __post_init__(self) -> None:
        _check(self.name, self.share, self.warm_up)

    def costs(self, exposure: Exposure) -> Tensor:
        return self._checked_members(exposure).float()

    def budget(self, exposure: Exposure, showings: int) -> float:
        allowed = _allowed(self.share, self.warm_up, exposure, showings)
        return allowed - self._shown(exposure)

    def excess(self, exposure: Exposure) -> float:
        return _share(self._shown(exposure), exposure, self.share)

    @property
    def limit_per_showing(self) -> float:
        return self.share

    def _shown(self, exposure: Exposure) -> int:
        return int(exposure.shown[self._checked_members(exposure).cpu().numpy()].sum())

    def _checked_members(self, exposure: Exposure) -> Tensor:
        if self.members.dtype != torch.bool or self.members.shape != (exposure.n_items,):
            raise ConfigError(
                f"the members of '{self.name}' must be True or False for each of"
                f" {exposure.n_items} items, not {self.members.dtype} of shape"
                f" {tuple(self.members.shape)}"
            )
        return self.members


@dataclass(frozen=True, eq=False)
class GroupFloor:
    """At least a share of all showings from a fixed group of items, from the first step on.

    It is the limit of the same share with all signs reversed: each showing costs -1.

    name: of the group; the price of the floor is recorded under it.
    members: (n_items,) bool, True for items of the group.
    share: the smallest share of all showings so far.
    """

    name: str
    members: Tensor  # (n_items,) bool
    share: float

    def __post_init__(self) -> None:
        _check(self.name, self.share, warm_up=0)

    @property
    def _limit(self) -> GroupLimit:
        return GroupLimit(self.name, self.members, self.share)

    def costs(self, exposure: Exposure) -> Tensor:
        return -self._limit.costs(exposure)

    def budget(self, exposure: Exposure, showings: int) -> float:
        return -self._limit.budget(exposure, showings)

    def excess(self, exposure: Exposure) -> float:
        return -self._limit.excess(exposure)

    @property
    def limit_per_showing(self) -> float:
        return -self.share


@dataclass(frozen=True)
class GiniLimit:
    """The Gini index of all that was shown is at most `limit`.

    limit: the largest index, between 0 and 1.
    warm_up: the step from which the limit holds; until then it falls in equal steps from 1, where
        every run begins.
    name: what the price of the limit is recorded under.

    The cost of a showing is what it adds to the index. With g the showings of n items, r_i the rank
    of item i by g_i (the least shown has rank 1, ties share their mean rank) and S = sum(g),

        G = sum_i (2 r_i - n - 1) g_i / (n S),    dG/dg_i = ((2 r_i - n - 1) / n - G) / S.

    The ranks are those of a sort, whose sum of (2 r_i - n - 1) g_i is the largest of all orders;
    so a small change of g moves G through g and S alone. Where g_i is tied, G has a kink: one more
    showing counts as the highest of the tied ranks, one less as the lowest, and the mean rank is
    midway. Since sum_i g_i dG/dg_i = 0, showing in the same proportions keeps G, and showing items
    of below-median exposure lowers it.
    """

    limit: float
    warm_up: int = 0
    name: str = "gini"

    def __post_init__(self) -> None:
        _check(self.name, self.limit, self.warm_up)

    def costs(self, exposure: Exposure) -> Tensor:
        return torch.from_numpy(marginal_gini(exposure.shown)).float()

    def budget(self, exposure: Exposure, showings: int) -> float:
        """The distance of the index to the limit: costs are first-order changes of the index."""
        step = (exposure.n_shown + showings) / showings if showings else 0.0
        begun = min(1.0, step / self.warm_up) if self.warm_up else 1.0
        return 1 - (1 - self.limit) * begun - _gini_and_ranks(exposure.shown)[0]

    def excess(self, exposure: Exposure) -> float:
        return _gini_and_ranks(exposure.shown)[0] - self.limit if exposure.n_shown else 0.0

    @property
    def limit_per_showing(self) -> float:
        return 0.0  # showings that cost nothing on average keep the index where it is


def marginal_gini(shown: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n_items,) dG/dg_i; all 0 before anything was shown."""
    total = int(shown.sum())
    if total == 0:
        return np.zeros(len(shown))
    index, ranks = _gini_and_ranks(shown)
    return (ranks / len(shown) - index) / total


def _gini_and_ranks(shown: NDArray[np.int64]) -> tuple[float, NDArray[np.int64]]:
    """G, and 2 r_i - n - 1 of every item; all but the last division in whole numbers."""
    _, group, sizes = np.unique(shown, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    ranks = (2 * last - sizes + 1)[group] - len(shown) - 1  # twice the mean rank is first + last
    total = int(shown.sum())
    return (int(ranks @ shown) / (len(shown) * total) if total else 0.0), ranks


def _check(name: str, share: float, warm_up: int) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"the limit '{name}' must lie between 0 and 1, not {share}")
    if warm_up < 0:
        raise ConfigError(f"the warm-up of '{name}' cannot be {warm_up} steps; 0 is none")


def _allowed(share: float, warm_up: int, exposure: Exposure, showings: int) -> float:
    """The number of showings that a group may have after the next step.

    Until `warm_up` * n showings have been made, with n those of the first step, the group may use
    the budget of showings still to come. This is lent only while no step has fewer showings than
    the one before; n is that of the first step, as those who join later may not stay.

    With N showings so far and S of the group, as long as everyone has an item outside the group:
    - S <= share * max(N, warm_up * n) after every step. Each step brings S up to at most that, or
      shows nothing of the group; and the bound never falls. So the limit holds for good once
      warm_up * n showings have been made: at step `warm_up` unless users leave.
    - S - share * N <= share * (1 - share) * warm_up * n, from this and S <= N.
    - Once users leave, nothing is lent: S - share * N falls by share * showings in every step
      until the limit holds, and the limit holds from then on.
    What was lent before the first user left cannot be avoided: until then the lists are those of
    users who stay.
    """
    return share * max(exposure.n_shown + showings, warm_up * exposure.lasting(showings))


def _share(shown: int, exposure: Exposure, limit: float) -> float:
    """By how much the share of all showings exceeds the limit; 0 before anything was shown."""
    return shown / exposure.n_shown - limit if exposure.n_shown else 0.0
