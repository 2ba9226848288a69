"""Limits in the long run, as every step has to keep them.

Every limit is linear in one step: showing item i once costs `costs[i]` times the weight of its
place, and all showings of the step together may cost `budget`. Costs and budget change from step to
step, as labels do. A limit on every list bars items from single lists instead (`scope`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.errors import ConfigError
from fairhorizon.limits.counts import Counts, Exposure, Weights
from fairhorizon.limits.language import GroupOf, Limit
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.vocabulary import Labels, Scope


class StepLimit(ABC):
    """A limit on what the run has shown so far, to be kept after every step.

    A subclass can be given to `server(limits)` of a method that keeps limits.
    """

    name: str  # under which its price is recorded
    scope: Scope = Scope.ALL  # else the limit is one on every list

    @abstractmethod
    def costs(self, exposure: Exposure) -> Tensor:
        """(n_items,) float32: the present cost of one showing of each item."""

    @abstractmethod
    def budget(self, exposure: Exposure, showings: Counts | int) -> float:
        """The total cost that the next showings may have to keep the limit after them.

        showings: (K,) to come, by place. The budget is affine in the number of steps to come, and
        negative where the step has to make up for excess.
        """

    @abstractmethod
    def excess(self, exposure: Exposure) -> float:
        """By how much the run exceeds the limit now: positive where the limit is broken."""

    @property
    @abstractmethod
    def limit_per_showing(self) -> float:
        """The mean cost of a showing that keeps the limit in the long run, as CPO needs it."""

    def weights(self, length: int) -> Weights:
        """(length,) what a showing at each place counts."""
        return np.ones(length)

    def room(self, exposure: Exposure, showings: int) -> Counts | None:  # noqa: ARG002
        """(n_items,) how often an item may be shown in the next step; None: without a bound."""
        return None

    def overshoot(self, exposure: Exposure) -> float:  # noqa: ARG002  # for those that steer
        """How much was spent beyond what was allowed, although every step kept its budget."""
        return 0.0

    def most_in_list(self, length: int) -> tuple[Counts, Counts] | None:  # noqa: ARG002
        """(length,) fewest and most items that cost, among the first 1, 2, .. places of a list."""
        return None


class ShareLimit(StepLimit):
    """At most a share of all showings from a group of items; as a floor, at least a share.

    limit: the share, and how showings are counted.
    members: (n_items,) bool, the items of a fixed group; None: G0, which moves with exposure.
    warm_up: the step from which the limit holds, for users who stay. The showings of the group that
        are allowed until then can be used at any step of the warm-up. Where users may leave, use 0.
        A floor holds from the first step on.

    Under retrospective labels all showings so far of the items that are in G0 now count. Then a
    showing can break the limit by bringing its item into G0, with all its earlier showings. So no
    item outside may be shown more often in a step than it has room for; G0 stays as it is, and with
    it what its items have spent, and the limit is kept as under fixed labels. Without looking ahead
    like this, the limit is broken and recovered.
    """

    def __init__(
        self,
        limit: Limit,
        members: Tensor | None = None,
        warm_up: int = 0,
        name: str = "",
        *,
        look_ahead: bool = True,
    ) -> None:
        self.limit, self.members, self.look_ahead = limit, members, look_ahead
        self.name, self.share = name or str(limit), limit.share
        self.labels = limit.labels or Labels.MOMENT
        self.scope = limit.scope
        self.sign = -1.0 if limit.is_floor else 1.0
        self.warm_up = 0 if limit.is_floor else warm_up
        _check(self.name, self.share, warm_up)

    def costs(self, exposure: Exposure) -> Tensor:
        return self.sign * self._group(exposure).float()

    def weights(self, length: int) -> Weights:
        return PlaceRule.from_limit(self.limit).place_weights(length)

    def budget(self, exposure: Exposure, showings: Counts | int) -> float:
        """What the group may have after the step, less what it has.

        Until `warm_up` * n showings have been made, with n those of the first step, the group may
        use the budget of showings still to come. This is lent only while no step has fewer showings
        than the one before; n is that of the first step, as those who join later may not stay.

        With N showings so far and S of the group, as long as everyone has an item outside it:
        - S <= share * max(N, warm_up * n) after every step. Each step brings S up to at most that,
          or shows nothing of the group; and the bound never falls. So the limit holds for good once
          warm_up * n showings have been made: at step `warm_up` unless users leave.
        - S - share * N <= share * (1 - share) * warm_up * n, from this and S <= N.
        - Once users leave, nothing is lent: S - share * N falls by share * showings in every step
          until the limit holds, and the limit holds from then on.
        What was lent before the first user left cannot be avoided: until then the lists are those
        of users who stay.
        """
        if self.scope is not Scope.ALL:
            return float("inf")
        to_come = np.atleast_1d(np.asarray(showings, dtype=np.int64))
        # The group's share of all that will have been shown after this step; during the warm-up, of
        # all that will have been shown at its end.
        allowed = self.share * max(
            self._total(exposure) + self._weigh(to_come, exposure),
            self.warm_up * self._weigh(exposure.lasting(to_come), exposure),
        )
        return self.sign * (allowed - self._spent(exposure))

    def excess(self, exposure: Exposure) -> float:
        total = self._total(exposure)
        return self.sign * (self._spent(exposure) / total - self.share) if total else 0.0

    @property
    def limit_per_showing(self) -> float:
        return self.sign * self.share

    def room(self, exposure: Exposure, showings: int) -> Counts | None:
        return exposure.room(showings) if self._looks_ahead else None

    def overshoot(self, exposure: Exposure) -> float:
        """What items that entered the group brought with them, beyond what the group may have."""
        if not self._looks_ahead:
            return 0.0
        # The loan of the warm-up counts as allowed here, whether users have left since or not.
        lent = self.warm_up * self._weigh(exposure.first_step, exposure)
        allowed = self.share * max(self._total(exposure), lent)
        return max(0.0, self.sign * (self._spent(exposure) - allowed))

    def most_in_list(self, length: int) -> tuple[Counts, Counts] | None:
        return None if self.scope is Scope.ALL else PlaceRule.from_limit(self.limit).bounds(length)

    @property
    def _looks_ahead(self) -> bool:
        # Only retrospective labels let a showing bring earlier ones into the group. A floor is not
        # hurt by items that enter.
        moves = self.members is None and self.labels is Labels.RETROSPECTIVE
        return moves and self.look_ahead and not self.limit.is_floor

    def _group(self, exposure: Exposure) -> Tensor:
        if self.members is None:
            return exposure.group(self.labels)
        if self.members.dtype != torch.bool or self.members.shape != (exposure.n_items,):
            raise ConfigError(
                f"the members of '{self.name}' must be True or False for each of"
                f" {exposure.n_items} items, not {self.members.dtype} of shape"
                f" {tuple(self.members.shape)}"
            )
        return self.members

    def _weigh(self, by_place: Counts, exposure: Exposure) -> float:
        weights = self.weights(max(len(by_place), len(exposure.at_place)))
        return float(weights[: len(by_place)] @ by_place)

    def _total(self, exposure: Exposure) -> float:
        return exposure.weighed(self.weights(len(exposure.at_place)))

    def _spent(self, exposure: Exposure) -> float:
        weights = self.weights(len(exposure.at_place))
        if self.members is None:
            return exposure.weighed_in_group(self.labels, weights)
        return exposure.weighed_in(self._group(exposure).cpu().numpy(), weights)


class PopularityLimit(ShareLimit):
    """At most a share of all showings in G0: alpha' of the paper, and as there, every showing
    counts under the label of its moment unless other labels are given."""

    called = "popularity"

    def __init__(
        self,
        share: float,
        warm_up: int = 0,
        labels: Labels | str = Labels.MOMENT,
        *,
        look_ahead: bool = True,
    ) -> None:
        limit = replace(Limit.popular(share), labels=Labels(labels))
        super().__init__(limit, None, warm_up, self.called, look_ahead=look_ahead)


class GroupLimit(ShareLimit):
    """At most a share of all showings from a fixed group of items, (n_items,) bool."""

    def __init__(self, name: str, members: Tensor, share: float, warm_up: int = 0) -> None:
        super().__init__(Limit(GroupOf(name), share), members, warm_up, name)


class GroupFloor(ShareLimit):
    """At least a share of all showings from a fixed group of items, from the first step on."""

    def __init__(self, name: str, members: Tensor, share: float) -> None:
        super().__init__(Limit(GroupOf(name), share, is_floor=True), members, 0, name)


def step_limit(
    bound: ResolvedLimit, warm_up: int = 0, *, look_ahead: bool = True, fixed: bool = False
) -> StepLimit:
    """The limit as steps have to keep it; with `fixed` groups, on its items of the beginning."""
    if bound.limit.is_gini:
        return GiniLimit(bound.limit.share, warm_up, str(bound))
    # None: the group of the moment, which follows exposure.
    members = None if bound.is_dynamic and not fixed else torch.from_numpy(bound.members)
    return ShareLimit(bound.limit, members, warm_up, look_ahead=look_ahead)


@dataclass(frozen=True)
class GiniLimit(StepLimit):
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

    def budget(self, exposure: Exposure, showings: Counts | int) -> float:
        """The distance of the index to the limit: costs are first-order changes of the index."""
        made = int(np.sum(showings))
        # The number of this step, as if all steps so far had had as many showings.
        step = (exposure.n_shown + made) / made if made else 0.0
        start = min(1.0, step / self.warm_up) if self.warm_up else 1.0
        # The bound falls in a straight line from 1 to the limit while the warm-up lasts.
        return 1 - (1 - self.limit) * start - _gini_and_ranks(exposure.shown)[0]

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
    # Items with equal counts form a tie; `last` is the rank of the last item of each tie.
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
