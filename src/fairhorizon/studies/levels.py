"""How accurate each method is when at most a given share of what is shown is popular."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.evaluation.short_term import relevance
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.methods import Method, rankers_of
from fairhorizon.metrics.accuracy import hit_matrix, ndcg
from fairhorizon.metrics.fairness import lists_above, popularity_rate, weighed_share
from fairhorizon.metrics.significance import holm, paired_difference, paired_t_test
from fairhorizon.metrics.spread import finite, strict_json
from fairhorizon.recommenders.base import Levels
from fairhorizon.studies.level_search import (
    MethodAtLimit,
    aims_at_level,
    counted,
    counting_words,
    is_ours,
    rate_of,
    stored,
    study_under,
)
from fairhorizon.studies.rows import LimitRow, OverSeeds, row_content, summary_row
from fairhorizon.studies.study import Study, limit_row
from fairhorizon.vocabulary import POPULAR

LEVELS = (0.85, 0.65, 0.37)
RANKERS = ("gru4rec", "sasrec", "ease:recent", "itemknn:recent")  # the strongest there are
RERANKERS = ("foe", "quota", "penalty")
LATER = ("pmmf", "fairco", "tfrom")  # re-rankers that look at what was shown so far
METHODS = (
    "fcpo",
    # with the same parts as ours, so that one can see what is gained by what
    *("fcpo:start", "stack+lists", "gru4rec+lists", "ease:recent+lists", "popularity+quota"),
    *(f"{ranker}+{how}" for ranker in RANKERS for how in RERANKERS),
    *(f"{ranker}+{how}" for ranker in ("stack", "ease:recent") for how in LATER),
)
FIRST_PLACES = (1, 5, 10, 20)  # of a list: the share of the group among so many

ABOVE = 0.0005  # a share this little above the level is reported as keeping it

Found = tuple[MethodAtLimit, "LevelRow"]  # and what it led to
# (n_users,) NaN: the user has no test items
NdcgOf = Callable[[MethodAtLimit], NDArray[np.float64]]
PartsOf = Callable[[Method], frozenset[str]]  # the rankers that a method is made of


@dataclass(frozen=True)
class LevelRow(OverSeeds):
    """A method at a level; without metrics if, under some seed, no setting keeps the level."""

    level: float  # the largest share of the group
    limit: str  # the level as a limit, such as popular<=0.37
    ours: bool  # trained, and served at the level itself; all others are rivals
    settings: tuple[str | None, ...]  # by seed; None: no setting keeps the level
    setting_levels: tuple[float, ...]  # the levels of those settings, if they have one
    above: int  # seeds with a rate above the level
    best_rival: bool = False
    counting: str = ""  # how the limit counts showings, in words; empty: all alike

    def to_json(self) -> dict[str, Any]:
        keys = (
            *("level", "limit", "dataset", "method", "protocol", "mode", "seeds"),
            *("ours", "best_rival"),
            *("settings", "above", "metrics", "seconds", "notes", "limit_missed"),
        )
        return row_content(self, keys)


@dataclass(frozen=True)
class GainRow:
    """Our method against a rival under a limit: the best one, or itself without CPO rounds.

    The difference of NDCG is paired over users, with an interval of 95 % confidence; a gain may be
    claimed only where the interval lies above 0.
    """

    level: float
    limit: str
    method: str
    rival: str
    best_rival: bool
    without_cpo: bool  # the rival is the same without CPO rounds
    same_parts: bool  # under this limit some rival is made of the same rankers
    ndcg: float
    rival_ndcg: float
    gain: float | None  # of NDCG, relative
    difference: float | None  # of NDCG
    low: float | None  # of the interval of the difference
    high: float | None
    gini_difference: float | None
    rate_difference: float | None
    users: int
    t_test: float | None
    t_test_corrected: float | None
    counting: str = ""  # how the limit counts showings, in words; empty: all alike

    @property
    def is_shown(self) -> bool:
        """Whether the interval shows a difference, to either side."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def to_json(self) -> dict[str, Any]:
        return row_content(self)


@dataclass(frozen=True)
class UserGroupRow:
    """A third of the users under a method and a limit.

    NDCG is the mean over the users and seeds. The difference is paired over users, with an interval
    of 95 % confidence.
    """

    level: float
    limit: str
    method: str
    ours: bool
    trait: str  # what users are sorted by: their activity, or their taste for the tail
    third: str  # of the users: least, middle, most
    users: int
    smallest: float  # value of the trait among them
    largest: float
    without: float  # NDCG without the limit
    limited: float  # NDCG with it
    difference: float
    low: float | None  # of the interval
    high: float | None
    counting: str = ""  # how the limit counts showings, in words; empty: all alike

    @property
    def is_shown(self) -> bool:
        """Whether the interval shows a difference, to either side."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = strict_json(asdict(self))
        return content


@dataclass(frozen=True)
class LevelResults:
    """Methods under limits, ours against rivals, and users by group."""

    rows: Sequence[LevelRow]
    gains: Sequence[GainRow]
    who_pays: Sequence[UserGroupRow]
    k: int  # length of the lists
    group: str = POPULAR  # the name of the limited group
    limits: Sequence[LimitRow] = ()  # what each method made of its limit


def level_results(
    study: Study, found: Sequence[MethodAtLimit], rows: Sequence[LevelRow], seeds: Sequence[int]
) -> LevelResults:
    """All that a report reads; the results of `unlimited_methods` must be there too.

    rows: as `level_rows` makes them.
    """
    k, dataset = max(study.ks), study.dataset()
    of_users = ndcg_of(study, seeds)
    traits = user_traits(dataset.split.train, dataset.sensitive)
    return LevelResults(
        rows,
        gains(found, rows, of_users, parts_of(study), k),
        who_pays(found, rows, of_users, traits, k),
        k,
        study.data.group_name,
        list(limit_rows(study, found, seeds)),
    )


def level_rows(
    study: Study, found: Sequence[MethodAtLimit], seeds: Sequence[int]
) -> list[LevelRow]:
    """A row for each: mean and deviation over the seeds, none where a seed's level is not kept.

    Only a method that is served at the level itself can have a rate above it.
    """
    k = max(study.ks)
    rows = [_level_row(study, one, seeds, k) for one in found]
    pairs = list(zip(found, rows, strict=True))
    best = [
        row
        for limit in dict.fromkeys(row.limit for row in rows)
        for _, row in best_rivals(pairs, limit, k)[:1]
    ]
    return [replace(row, best_rival=row in best) for row in rows]


def _level_row(study: Study, one: MethodAtLimit, seeds: Sequence[int], k: int) -> LevelRow:
    where = study_under(study, one.method, one.limit)
    measure = {seed: counted(where, one.limit, seed, stored(seed)) for seed in seeds}
    results = []
    for setting, seed in zip(one.settings, seeds, strict=True):
        if setting is not None:
            row = measure[seed](setting)
            places = by_place(where.lists(setting, seed), study.dataset().sensitive, one.limit, k)
            results.append(replace(row, metrics={**places, **row.metrics}))
    rates = [rate_of(row, k) for row in results]
    # A mean over the seeds that happened to keep the level would flatter the method.
    summary = summary_row(results) if len(results) == len(seeds) else None
    settings = [setting for setting in one.settings if setting is not None]
    return LevelRow(
        dataset=study.dataset().split.name,
        method=one.method.name,
        level=one.limit.share,
        limit=str(one.limit),
        counting=counting_words(one.limit),
        protocol=study.protocol,
        mode=study.mode,
        seeds=tuple(seeds),
        metrics=summary.metrics if summary else {},
        seconds=summary.seconds if summary else {},
        notes=summary.notes if summary else (),
        limit_missed=summary.limit_missed if summary else 0,
        ours=is_ours(one.method),
        settings=tuple(None if setting is None else str(setting) for setting in one.settings),
        setting_levels=tuple(setting.level for setting in settings if setting.level is not None),
        above=sum(rate > one.limit.share + ABOVE for rate in rates),
    )


def by_place(
    lists: NDArray[np.int64], group: NDArray[np.bool_], limit: Limit, k: int
) -> dict[str, float | None]:
    """Where in the lists the group is: its share of the first places, by weight and by list."""
    found = {
        f"popularity_rate@{first}": popularity_rate(lists, group, first)
        for first in FIRST_PLACES
        if first < k
    }
    found[f"popularity_rate@{k}"] = popularity_rate(lists, group, k)
    found[f"weighed_rate@{k}"] = weighed_share(lists, group, k)
    found[f"lists_above@{k}"] = lists_above(lists, group, limit.share, k)
    return {name: finite(value) for name, value in found.items()}


def ndcg_of(study: Study, seeds: Sequence[int]) -> NdcgOf:
    """NDCG of the longest lists by user, the mean over the seeds; NaN without test items."""
    relevant = relevance(study.dataset().split.test)
    n_relevant = np.diff(relevant.indptr)

    def measured(one: MethodAtLimit) -> NDArray[np.float64]:
        where = study_under(study, one.method, one.limit)
        values = [
            ndcg(hit_matrix(where.lists(setting, seed), relevant), n_relevant, max(study.ks))
            for setting, seed in zip(one.settings, seeds, strict=True)
            if setting is not None
        ]
        mean: NDArray[np.float64] = np.mean(values, axis=0)
        return mean

    return measured


def parts_of(study: Study) -> Callable[[Method], frozenset[str]]:
    """The rankers that a method is made of with the settings of the study."""
    return lambda method: rankers_of(study.build(method, seed=0))


def best_rivals(found: Sequence[Found], limit: str, k: int) -> list[Found]:
    """The best of all rivals under a limit, and the best of those that are no policy of ours.

    The second is the same as the first unless that is our method without its training.
    """
    rivals = [
        (mean, row.method, (one, row))
        for one, row in found
        if row.limit == limit and not row.ours
        if (mean := row.spread(f"ndcg@{k}").mean) is not None
    ]
    others = [rival for rival in rivals if not aims_at_level(rival[2][0].method)]
    # Ties in NDCG go by name, so that the choice does not depend on the order of the methods.
    best = [max(some, key=lambda rival: rival[:2])[2] for some in (rivals, others) if some]
    return best if len(best) < 2 or best[0] is not best[1] else best[:1]


def gains(
    found: Sequence[MethodAtLimit],
    rows: Sequence[LevelRow],
    ndcg_of: NdcgOf,
    parts_of: PartsOf,
    k: int,
) -> list[GainRow]:
    """Ours against rivals under each limit: the best, and itself without CPO rounds.

    Where the best is itself without CPO rounds, the best of all others is a line too. rows: as
    `level_rows` makes them. Tests and intervals are paired over users, with the mean NDCG over the
    seeds; Holm's correction is for all lines together.
    """
    pairs = list(zip(found, rows, strict=True))
    compared = [
        line
        for one, row in pairs
        if row.ours and row.spread(f"ndcg@{k}").mean is not None
        for line in _gain_lines((one, row), pairs, ndcg_of, parts_of, k)
    ]
    corrected = holm([np.nan if one.t_test is None else one.t_test for one in compared])
    return [
        replace(row, t_test_corrected=finite(value))
        for row, value in zip(compared, corrected, strict=True)
    ]


def _gain_lines(
    ours: Found, pairs: Sequence[Found], ndcg_of: NdcgOf, parts_of: PartsOf, k: int
) -> list[GainRow]:
    """The best rival first."""
    limit, parts = ours[1].limit, parts_of(ours[0].method)
    rivals = [
        pair for pair in pairs if pair[1].limit == limit and not pair[1].ours and pair[1].metrics
    ]
    # A gain over rivals with fewer rankers may be that of the rankers; the row says whether some
    # rival had them all.
    same_parts = any(parts <= parts_of(rival.method) for rival, _ in rivals)
    starts = [pair for pair in rivals if is_without_cpo(pair[0].method, ours[0].method, parts_of)]
    chosen = best_rivals(pairs, limit, k)
    chosen += [pair for pair in starts if pair not in chosen]
    lines = []
    for rival in chosen:
        line = _gain(ours[1], rival[1], (ndcg_of(ours[0]), ndcg_of(rival[0])), k)
        lines.append(replace(line, without_cpo=rival in starts, same_parts=same_parts))
    return lines


def is_without_cpo(rival: Method, ours: Method, parts_of: PartsOf) -> bool:
    """Whether a rival is our method as it is before its first CPO round."""
    return (
        aims_at_level(rival)
        and not rival.capabilities.learns
        and rival.base == ours.base
        and parts_of(rival) == parts_of(ours)
    )


def _gain(
    row: LevelRow,
    rival: LevelRow,
    per_user: tuple[NDArray[np.float64], NDArray[np.float64]],
    k: int,
) -> GainRow:
    own, theirs = row.spread(f"ndcg@{k}").mean, rival.spread(f"ndcg@{k}").mean
    assert own is not None  # nor is that of the best rival and of the same without CPO rounds
    assert theirs is not None
    p_value, difference = finite(paired_t_test(*per_user)), paired_difference(*per_user)
    return GainRow(
        level=row.level,
        limit=row.limit,
        counting=row.counting,
        method=row.method,
        rival=rival.method,
        best_rival=rival.best_rival,
        without_cpo=False,
        same_parts=False,
        ndcg=own,
        rival_ndcg=theirs,
        gain=own / theirs - 1 if theirs else None,
        difference=finite(difference.mean),
        low=finite(difference.low),
        high=finite(difference.high),
        gini_difference=_difference(row, rival, f"gini@{k}"),
        rate_difference=_difference(row, rival, f"popularity_rate@{k}"),
        users=int((~np.isnan(per_user[0])).sum()),
        t_test=p_value,
        t_test_corrected=p_value,  # of one test
    )


def _difference(row: OverSeeds, other: OverSeeds, metric: str) -> float | None:
    own, theirs = row.spread(metric).mean, other.spread(metric).mean
    return None if own is None or theirs is None else own - theirs


def limit_rows(
    study: Study, found: Sequence[MethodAtLimit], seeds: Sequence[int]
) -> Iterator[LimitRow]:
    """What each method made of its limit; nothing is reached if no setting keeps it."""
    for one in found:
        settings = [setting for setting in one.settings if setting is not None]
        if len(settings) < len(seeds):
            yield LimitRow(
                method=one.method.name,
                seeds=tuple(seeds),
                limit=str(one.limit),
                asked=one.limit.share,
                is_floor=one.limit.is_floor,
                reached=None,
                kept=False,
                n_lists=0,
            )
        else:
            bound = ResolvedLimit(one.limit, study.dataset().sensitive)
            own = study_under(study, one.method, one.limit)
            yield limit_row(own, one.method.name, settings, seeds, bound)


# ---- Who pays for a limit: users by activity and by taste, with it and without -------------------

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
    # The level of a penalty is a weight: 0 is no limit.
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
        # The last is the best that is no policy of ours.
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
