"""How accurate each method is when at most a given share of what is shown is popular."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairhorizon.evaluation.short_term import relevance
from fairhorizon.limits.language import Limit
from fairhorizon.methods import Method, longest_first, rankers_of
from fairhorizon.metrics.accuracy import hit_matrix, ndcg
from fairhorizon.metrics.fairness import lists_above, popularity_rate, weighed_share
from fairhorizon.metrics.spread import finite
from fairhorizon.parallel.engine import TaskEngine, Work
from fairhorizon.parallel.processes import HERE
from fairhorizon.recommenders.base import Levels, Recommender
from fairhorizon.studies.dials import COUNTED, TRIES, Measure, best_setting, rate_of, tried
from fairhorizon.studies.level_limits import (
    by_counting,
    counted_share,
    counting_of,
    counting_words,
)
from fairhorizon.studies.rows import LevelRow, StudyRow, summary_row
from fairhorizon.studies.standing import (
    NdcgOf,
    Standing,
    aims_at_level,
    best_rivals,
    is_ours,
    serves_counting,
)
from fairhorizon.studies.study import Study, Task

LEVELS = (0.85, 0.65, 0.37)
RANKERS = ("gru4rec", "sasrec", "ease", "itemknn")  # the strongest there are
RERANKERS = ("foe", "quota", "penalty")
LATER = ("pmmf", "fairco", "tfrom")  # re-rankers that look at what was shown so far
METHODS = (
    "fcpo",
    # with the same parts as ours, so that one can see what is gained by what
    *("fcpo:start", "stack+lists", "gru4rec+lists", "ease+lists", "popularity+quota"),
    *(f"{ranker}+{how}" for ranker in RANKERS for how in RERANKERS),
    *(f"{ranker}+{how}" for ranker in ("stack", "ease") for how in LATER),
)
FIRST_PLACES = (5, 10, 20)  # of a list: the share of the group among so many

ABOVE = 0.0005  # a share this little above the level is reported as keeping it


def study_under(study: Study, method: Method, limit: Limit) -> Study:
    """Where results of a method are for a limit: served as it counts, by methods that can.

    The results of all other methods are those of the plain study; the limit only measures them.
    """
    if limit.is_plain or not serves_counting(method):
        return study
    return replace(study, counting=counting_of(limit))


@dataclass(frozen=True)
class LevelSearch:
    """Methods that share what is trained, under one seed: every setting that is tried."""

    study: Study
    methods: tuple[Method, ...]
    limits: tuple[Limit, ...]
    seed: int
    tries: int

    def prepare(self) -> None:
        self.study.dataset()

    def rows(self) -> Iterator[StudyRow]:
        dataset = self.study.dataset()
        part: list[tuple[Recommender, float]] = []  # trained or loaded when first needed

        def made(study: Study, method: Method) -> StudyRow:
            row = study.row(method, self.seed)
            if row is not None:
                return row
            task = Task(study, self.methods, self.seed)
            if not part:
                part.append(task.part(dataset))
            model, seconds = part[0]
            return task.evaluate(method, model, dataset, seconds)

        for method in self.methods:
            for counting, shares in by_counting(self.limits).items():
                study = study_under(self.study, method, counting)
                measure = _counted(study, counting, self.seed, made)
                if aims_at_level(method):
                    yield from (measure(method.limited_to(share)) for share in shares)
                    continue
                for _, row in tried(method, shares, max(study.ks), measure, self.tries):
                    yield row


def run_levels(
    study: Study,
    methods: Sequence[Method],
    limits: Sequence[Limit],
    seeds: Sequence[int],
    *,
    tries: int = TRIES,
    engine: TaskEngine = HERE,
    on_row: Callable[[StudyRow], object] = lambda _: None,
) -> None:
    """Make every result that is missing; `on_row` is called with each, those at hand included."""
    shares = dict.fromkeys(limit.share for limit in limits)
    bound = [method for method in methods if method.abilities.levels is Levels.TRAINED]
    each_level = [method.limited_to(share) for method in bound for share in shares]
    tasks: list[Work[StudyRow]] = [*study.tasks(each_level, seeds, on_row)]
    others = [method for method in methods if method not in bound]
    for trained in sorted({method.trained for method in others}, key=longest_first):
        sharing = tuple(method for method in others if method.trained == trained)
        tasks += [LevelSearch(study, sharing, tuple(limits), seed, tries) for seed in seeds]
    for row in engine.each(tasks):
        on_row(row)


def standings(
    study: Study,
    methods: Sequence[Method],
    limits: Sequence[Limit],
    seeds: Sequence[int],
    *,
    tries: int = TRIES,
) -> list[Standing]:
    """Limit after limit; of a rival, under each seed, the setting with the best NDCG on test."""
    k = max(study.ks)
    best: dict[tuple[Limit, Method, int], Method | None] = {}
    for counting, shares in by_counting(limits).items():
        for method in methods:
            where = study_under(study, method, counting)
            for seed in seeds:
                settled: dict[float, Method | None]
                if aims_at_level(method):
                    settled = {share: method.limited_to(share) for share in shares}
                else:
                    measure = _counted(where, counting, seed, _at_hand(seed))
                    results = list(tried(method, shares, k, measure, tries))
                    settled = {share: best_setting(results, share, k) for share in shares}
                for share, setting in settled.items():
                    best[replace(counting, share=share), method, seed] = setting
    return [
        Standing(limit, method, tuple(best[limit, method, seed] for seed in seeds))
        for limit in limits
        for method in methods
    ]


def level_rows(study: Study, found: Sequence[Standing], seeds: Sequence[int]) -> list[LevelRow]:
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


def _level_row(study: Study, one: Standing, seeds: Sequence[int], k: int) -> LevelRow:
    where = study_under(study, one.method, one.limit)
    measure = {seed: _counted(where, one.limit, seed, _at_hand(seed)) for seed in seeds}
    results = []
    for setting, seed in zip(one.settings, seeds, strict=True):
        if setting is not None:
            row = measure[seed](setting)
            places = by_place(where.lists(setting, seed), study.dataset().sensitive, one.limit, k)
            results.append(replace(row, metrics={**places, **row.metrics}))
    rates = [rate_of(row, k) for row in results]
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
        dials=tuple(setting.level for setting in settings if setting.level is not None),
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

    def measured(one: Standing) -> NDArray[np.float64]:
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


Made = Callable[[Study, Method], StudyRow]


def _at_hand(seed: int) -> Made:
    """Looks up stored results."""
    return lambda study, method: study.made(method, seed)


def _counted(study: Study, counting: Limit, seed: int, made: Made) -> Measure:
    """Results with the share as the limit counts it, where that is not the share of showings."""
    if counting.is_plain:
        return lambda method: made(study, method)

    def measured(method: Method) -> StudyRow:
        row = made(study, method)
        lists, group = study.lists(method, seed), study.dataset().sensitive
        share = counted_share(counting, lists, group, max(study.ks))
        name = f"{row.method} ({counting_words(counting)})"
        return replace(row, method=name, metrics={**row.metrics, COUNTED: finite(share)})

    return measured
