"""Who pays for a limit: the accuracy of users by activity and by taste, with it and without it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.limits.language import Limit
from fairhorizon.methods import Method
from fairhorizon.metrics.significance import paired_difference
from fairhorizon.metrics.spread import finite
from fairhorizon.recommenders.base import Levels
from fairhorizon.studies.level_search import MethodAtLimit
from fairhorizon.studies.levels import Found, LevelRow, NdcgOf, UserGroupRow, best_rivals

ACTIVITY, TAIL = "activity", "taste for the tail"
THIRDS = ("least", "middle", "most")
Traits = Mapping[str, NDArray[np.float64]]  # by name, (n_users,); NaN: the user has none


def user_traits(train: Interactions, group: NDArray[np.bool_]) -> Traits:
    """What users are sorted by: number of training items, and share of these outside the group."""
    counts = train.user_counts().astype(np.float64)
    outside = np.bincount(train.users[~group[train.items]], minlength=train.n_users)
    shares = np.full(train.n_users, np.nan)
    np.divide(outside, counts, out=shares, where=counts > 0)
    return {ACTIVITY: counts, TAIL: shares}


def thirds(trait: NDArray[np.float64], counted: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """The users with the least, middle and most of a trait, as equal in number as can be.

    counted: (n_users,) users that may be in a third. Equal users are taken in the order of their
    codes.
    """
    users = np.flatnonzero(counted & ~np.isnan(trait))
    ordered = users[np.argsort(trait[users], kind="stable")]
    return np.array_split(ordered, len(THIRDS))


def unlimited(method: Method) -> Method | None:
    """The method without a limit; None where that would be another training."""
    match method.capabilities.levels:
        case Levels.NONE:
            return method
        case Levels.TRAINED:
            return None
    # a penalty has a weight for its level
    return replace(method, level=1.0 if method.capabilities.level_is_share else 0.0)


def payers(found: Sequence[MethodAtLimit], rows: Sequence[LevelRow], k: int) -> list[Found]:
    """Whose users are looked at: ours and the best other method under each limit.

    Methods that cannot serve without a limit are left out.
    """
    pairs = list(zip(found, rows, strict=True))
    chosen: list[Found] = []
    for limit in dict.fromkeys(row.limit for row in rows):
        ours = [pair for pair in pairs if pair[1].limit == limit and pair[1].ours]
        chosen += [pair for pair in ours if pair[1].metrics]
        chosen += best_rivals(pairs, limit, k)[-1:]
    return [pair for pair in chosen if unlimited(pair[0].method) is not None]


def unlimited_methods(
    found: Sequence[MethodAtLimit], rows: Sequence[LevelRow], k: int
) -> list[Method]:
    """Methods whose results `who_pays` needs beside those of the levels."""
    methods = (unlimited(one.method) for one, _ in payers(found, rows, k))
    return list(dict.fromkeys(method for method in methods if method is not None))


def who_pays(
    found: Sequence[MethodAtLimit],
    rows: Sequence[LevelRow],
    ndcg_of: NdcgOf,
    traits: Traits,
    k: int,
) -> list[UserGroupRow]:
    """NDCG of thirds of the users, of ours and of the best other method under each limit.

    rows: as `level_rows` makes them. The results of `unlimited_methods` must be there.
    """
    lines: list[UserGroupRow] = []
    for one, row in payers(found, rows, k):
        free = (unlimited(one.method),) * len(one.settings)
        without = MethodAtLimit(Limit(one.limit.group, 1.0), one.method, free)
        lines += _lines(row, traits, ndcg_of(without), ndcg_of(one))
    return lines


def _lines(
    row: LevelRow, traits: Traits, free: NDArray[np.float64], limited: NDArray[np.float64]
) -> Iterator[UserGroupRow]:
    """A row for every third that has users with test items."""
    for name, trait in traits.items():
        for third, users in zip(THIRDS, thirds(trait, ~np.isnan(free)), strict=True):
            if not len(users):
                continue
            difference = paired_difference(limited[users], free[users])
            yield UserGroupRow(
                level=row.level,
                limit=row.limit,
                counting=row.counting,
                method=row.method,
                ours=row.ours,
                trait=name,
                third=third,
                users=len(users),
                smallest=float(trait[users].min()),
                largest=float(trait[users].max()),
                without=float(free[users].mean()),
                limited=float(limited[users].mean()),
                difference=difference.mean,
                low=finite(difference.low),
                high=finite(difference.high),
            )
