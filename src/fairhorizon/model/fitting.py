"""A fit on the whole log: settings are chosen on its newest part first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.response_log import ResponseLog, load_responses
from fairhorizon.data.splits import split, uncut
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.retention.replay import FittedRetention, check_weighs, learn_from_answers
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.language import POPULAR, GroupOf, Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.methods import Method
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.progress import SILENT, Listener

Group = NDArray[np.bool_]


def fit_whole(
    draft: Recommender,
    log: Interactions,
    *,
    group: Group | None = None,
    listener: Listener = SILENT,
) -> Recommender:
    """The method fitted on every row of the log, with settings that suit its newest part.

    First it is fitted without the last item of every user: everything that a fit chooses (settings
    and weights of rankers, epochs, the policy, the calibration of scores, prices) is chosen there,
    on the last item and the last fifth of those before it. Then what is estimated from the log is
    estimated again, from all of it. A method that has to be trained to follow a log (lird,
    fcpo:paper) is trained a second time.

    draft: the method before its fit.
    log: the log, ties in the order wanted.
    group: (n_items,) bool, whose exposure the method limits; None: the popular items.
    listener: receives the progress.
    """
    newest = split(log, test_share=0.0, ties="keep")
    chosen = draft.fit(newest, sensitive=group, listener=listener)
    if group is None:
        group = popular_group(log.item_counts(), draft.popular_share)
    return chosen.refitted(uncut(log), sensitive=group, listener=listener)


def own_limit(limits: Sequence[Limit]) -> Limit | None:
    """The limit that is the level of a method: on the popular items, else the first of its kind.

    Of its kind are largest shares of all showings.
    """
    levels = [limit for limit in limits if limit.is_plain and not limit.is_floor]
    on_popular = [limit for limit in levels if limit.group == GroupOf(POPULAR)]
    return next(iter(on_popular or levels), None)


def with_level(method: Method, limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """The limits, with the level of a method that is a share of the popular items: `fcpo@0.4`."""
    if method.level is None or not method.capabilities.level_is_share:
        return tuple(limits)
    level = Limit.popular(method.level)
    for limit in limits:
        if limit.group == level.group and limit.is_plain and not limit.is_floor:
            method.limited_to(limit.share)  # refuses two that differ
            return tuple(limits)
    return (level, *limits)


def at_level(method: Method, limits: Sequence[Limit]) -> Method:
    """The method at the share of its own limit, where its level is one."""
    own = own_limit(limits)
    if own is None or method.level is not None or not method.capabilities.level_is_share:
        return method
    return method.limited_to(own.share) if own.share > 0 else method


def group_of(own: Limit | None, bound: Sequence[ResolvedLimit]) -> Group | None:
    """The members of the group of a method's own limit; None: the popular items."""
    if own is None or own.group == GroupOf(POPULAR):
        return None
    return next((one.members for one in bound if one.limit == own), None)


AWAY = 14.0  # days


@dataclass(frozen=True)
class GivenAnswers:
    """A record of answers, and the days at its end in which who left was shown nothing.

    log: that the method is fitted on.
    """

    record: ResponseLog
    log: Interactions
    away: float = AWAY

    def __str__(self) -> str:
        left = int(self.record.left(self.away).sum())
        return (
            f"{len(self.record):,} answers of {len(self.record.ids):,} users, of whom {left:,} left"
        )

    @classmethod
    def read(cls, source: Any, away: float, draft: Recommender, log: Interactions) -> Self:
        """From a frame or a file; refused here if nothing can be learned from it later.

        draft: the method before its fit.
        """
        check_weighs(draft)
        if not away > 0:
            raise ConfigError(f"away for {away:g} days (give a number above 0)")
        record = load_responses(source, log)
        record.check(away)
        return cls(record, log, away)

    def learned(self, model: Recommender) -> FittedRetention:
        """What a like is worth, with the chances of a model that was fitted on the log."""
        return learn_from_answers(model, self.log, self.record, away=self.away, seed=model.seed)
