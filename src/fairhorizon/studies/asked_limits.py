"""The limits of a long run: the one on the popular group, and others beside it."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from fairhorizon.datasets import DataSpec, bound_limits
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.long_term import LongRunSettings
from fairhorizon.limits.bound import BoundLimit
from fairhorizon.limits.language import POPULAR, GroupOf, Limit
from fairhorizon.limits.step_limits import PopularityLimit, StepLimit, step_limit
from fairhorizon.metrics.shares import ROUNDING
from fairhorizon.studies.level_search import level_limit
from fairhorizon.studies.study import fingerprint
from fairhorizon.vocabulary import Labels, Scope


@dataclass(frozen=True)
class AskedLimits:
    """What is kept beside the limit on the popular group, and how."""

    further: tuple[Limit, ...] = ()
    item_table: str | None = None  # a file with a row per item; without it the log has the columns
    look_ahead: bool = True  # keep items from entering the group where that would break a limit

    def __bool__(self) -> bool:
        return bool(self.further)

    def __str__(self) -> str:
        return ", ".join(map(str, self.further))

    def bound(
        self, data: DataSpec, cache_dir: Path | None, settings: LongRunSettings
    ) -> list[BoundLimit]:
        """The further limits; where groups move, they count by the labels of the run if unsaid."""
        lag = settings.lag if settings.labels is Labels.LAGGED else 0
        stated = [
            replace(limit, labels=settings.labels, lag=lag)
            if limit.group == GroupOf(POPULAR) and limit.labels is None
            else limit
            for limit in self.further
        ]
        return bound_limits(stated, data, cache_dir, self.item_table)

    def main_limit(self, data: DataSpec, settings: LongRunSettings) -> Limit:
        """The first limit as users write it, with its labels where groups move."""
        limit = level_limit(settings.alpha_prime, data)
        if data.group_column is not None:
            return limit
        lag = settings.lag if settings.labels is Labels.LAGGED else 0
        return replace(limit, labels=settings.labels, lag=lag)

    def main(self, alpha_prime: float, settings: LongRunSettings) -> StepLimit:
        """The limit on the popular group, or on that of the data."""
        # what a warm-up beyond the last step lends would never be paid back
        warm_up = min(settings.warm_up, settings.steps)
        return PopularityLimit(alpha_prime, warm_up, settings.labels, look_ahead=self.look_ahead)

    def steps(
        self, data: DataSpec, cache_dir: Path | None, settings: LongRunSettings
    ) -> list[StepLimit]:
        """The further limits as steps have to keep them."""
        warm_up = min(settings.warm_up, settings.steps)
        return [
            step_limit(one, warm_up, look_ahead=self.look_ahead)
            for one in self.bound(data, cache_dir, settings)
        ]

    def fingerprint(
        self, data: DataSpec, cache_dir: Path | None, settings: LongRunSettings
    ) -> list[object]:
        """The same for the same limits on the same items."""
        groups = [fingerprint(one) for one in self.bound(data, cache_dir, settings)]
        return [groups, self.look_ahead]

    def check(self, data: DataSpec, cache_dir: Path | None, settings: LongRunSettings) -> None:
        """Refuse limits on groups that no showings could keep together.

        A user is shown an item once, or as often as repeats allow: a small group cannot have a
        large share of a long run.
        """
        shares = [
            one
            for one in self.bound(data, cache_dir, settings)
            if not one.limit.is_gini and not one.moves and one.limit.scope is Scope.ALL
        ]
        if not shares:
            return
        members = np.stack([one.members for one in shares])
        kinds, sizes = np.unique(members, axis=1, return_counts=True)  # items in the same groups
        sizes = sizes * settings.most_showings
        shown = min(settings.steps * settings.list_length, int(sizes.sum()))
        sign = np.array([-1.0 if one.limit.is_floor else 1.0 for one in shares])
        found = linprog(
            np.zeros(len(sizes)),
            A_ub=sign[:, None] * kinds,
            b_ub=sign * np.array([one.limit.share for one in shares]) + ROUNDING,
            A_eq=np.ones((1, len(sizes))),
            b_eq=[1.0],
            bounds=[(0.0, size / shown) for size in sizes],
        )
        if not found.success:
            raise ConfigError(
                f"{self}: no {shown} items that a user may be shown keep this (loosen a limit or "
                "lower a floor)"
            )
