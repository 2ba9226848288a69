"""Which setting of each method keeps each limit.

A level is a limit: at most a share of the showings for one group, counted in one way. A method that
serves limits is simply told the level. Of all other methods a setting is searched whose lists keep
it: rates grow with a setting, so a few settings between the closest two on both sides are enough.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fairhorizon.datasets import DataSpec
from fairhorizon.limits.language import POPULAR, GroupOf, Limit, LimitError
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.limits.supported import SupportedLimits
from fairhorizon.methods import Method, build, longest_first
from fairhorizon.metrics.fairness import (
    share_within_every_list,
    weighed_share,
)
from fairhorizon.metrics.shares import exceeds, whole_showings
from fairhorizon.metrics.spread import finite
from fairhorizon.parallel.engine import HERE, TaskEngine, Work
from fairhorizon.recommenders.base import Levels, Recommender
from fairhorizon.studies.rows import StudyRow
from fairhorizon.studies.study import Study, Task
from fairhorizon.vocabulary import Scope, Weighing

TRIES = 8  # further settings per level, each nearer to it
NEAR = 0.002  # a share this little below the level ends the search
STEEP = 0.2  # between rates this far apart, interpolation is not linear
WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0)  # of a penalty, to begin with
HEAVIEST = 64.0
THOUSANDTHS = 1000
COUNTED = "counted_share"  # metric: the share of the group as a limit counts it, by place or list

# The result of a method, under one seed: in the study of a way of counting, or given that study.
Measure = Callable[[Method], StudyRow]
Results = Callable[[Study, Method], StudyRow]


# ---- Levels as limits ----------------------------------------------------------------------------
def level_limit(share: float, data: DataSpec) -> Limit:
    """What a plain level is: at most this share of all showings for the group of the data."""
    return Limit(data.limited_group, share)


def data_limited_by(limits: Iterable[Limit], data: DataSpec) -> DataSpec:
    """The data with the group that the limits are about; all limits must be about one group.

    A limit on a column names the group itself, where the data do not.
    """
    named: GroupOf | None = None
    for limit in limits:
        _check(limit)
        if limit.group == data.limited_group:
            named = limit.group
            continue
        if limit.group.reserved or data.group_column is not None or named is not None:
            raise LimitError(
                f"{str(limit)!r}: the levels are those of {data.limited_group} (compare one group "
                "at a time)"
            )
        given = {"group_column": limit.group.column, "sensitive_values": limit.group.values}
        data = data.model_validate({**data.model_dump(), **given})
    return data


def _check(limit: Limit) -> None:
    """Refuse what no level can be."""
    if limit.is_gini or limit.is_floor:
        raise LimitError(f"{str(limit)!r}: a level is a largest share (give GROUP<=SHARE)")
    group = limit.group
    if group != GroupOf(POPULAR) and not group.values:
        raise LimitError(f"{str(limit)!r}: a level is of one group (give popular or COLUMN=VALUE)")
    if limit.labels is not None:
        raise LimitError(
            f"{str(limit)!r}: groups do not move while lists are made (leave out labels)"
        )
    if limit.share <= 0:
        raise LimitError(f"{str(limit)!r}: a level is a share above 0")


def counting_of(limit: Limit) -> Limit:
    """The way of counting alone: the same for limits that differ in nothing but the share."""
    return replace(limit, share=1.0)


def by_counting(limits: Sequence[Limit]) -> dict[Limit, list[float]]:
    """The shares of the limits under each way of counting."""
    shares: dict[Limit, list[float]] = {}
    for limit in limits:
        shares.setdefault(counting_of(limit), []).append(limit.share)
    return shares


def counted_share(
    limit: Limit, lists: NDArray[np.int64], group: NDArray[np.bool_], k: int
) -> float:
    """The smallest share that the limit could have for these lists of length k to keep it."""
    places = k if limit.first is None else min(k, limit.first)
    if limit.scope is Scope.ALL:
        return weighed_share(lists, group, k, PlaceRule.from_limit(limit).place_weights(k))
    return share_within_every_list(lists, group, places, prefixes=limit.scope is Scope.PREFIX)


def counting_words(limit: Limit) -> str:
    """How showings are counted, for a caption; empty where all count alike."""
    words = []
    match limit.scope:
        case Scope.LIST:
            words.append("per list")
        case Scope.PREFIX:
            words.append("per list and per prefix of it")
        case Scope.ALL:
            pass
    if limit.first is not None:
        words.append(f"of the first {limit.first} places")
    match limit.weighing:
        case Weighing.LOG:
            words.append("weighed by 1/log2(1 + place)")
        case Weighing.GIVEN:
            words.append(f"weighed by {', '.join(f'{weight:g}' for weight in limit.weights)}")
        case Weighing.NONE:
            pass
    return ", ".join(words)


# ---- Our methods and their rivals ----------------------------------------------------------------
def aims_at_level(method: Method) -> bool:
    """Whether lists are made at the level itself; for other methods a setting is searched."""
    return method.capabilities.aims_at_level


def is_ours(method: Method) -> bool:
    """Trained for limits and served at the level itself; all others are rivals."""
    return aims_at_level(method) and method.capabilities.learns


def serves_counting(method: Method) -> bool:
    """Whether the method can keep one limit on a group as the limit counts."""
    kept = build(replace(method, level=None), {}, seed=0).supported_limits
    return kept in (SupportedLimits.JOINT, SupportedLimits.STEPS, SupportedLimits.ANY)


def study_under(study: Study, method: Method, limit: Limit) -> Study:
    """Where results of a method are for a limit: served as it counts, by methods that can.

    The results of all other methods are those of the plain study; the limit only measures them.
    """
    if limit.is_plain or not serves_counting(method):
        return study
    return replace(study, counting=counting_of(limit))


# ---- The search ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class LevelGrid:
    """The levels that a rival can be set to, as whole numbers of steps; more are less strict."""

    first: tuple[int, ...]  # always tried
    tightest: int
    loosest: int
    steps_per_unit: int

    @classmethod
    def for_method(cls, method: Method, levels: Sequence[float], k: int) -> Self | None:
        """None of a method that has no levels."""
        if method.reranker is None:
            return None
        if method.reranker == "penalty":
            first = tuple(-round(weight * THOUSANDTHS) for weight in WEIGHTS)
            tightest = -round(HEAVIEST * THOUSANDTHS)
            return cls(first, tightest, 0, THOUSANDTHS)
        # A list has room for whole items, so that a quota in between is the one below.
        unit = k if method.reranker == "quota" else THOUSANDTHS
        first = tuple(dict.fromkeys(whole_showings(level * unit) for level in levels))
        return cls(first, 0, unit, unit)

    def level(self, steps: int) -> float:
        """The level for the re-ranker; rounded up, because a quota is rounded down."""
        return math.ceil(abs(steps) / self.steps_per_unit * 1e4 - 1e-6) / 1e4

    def next(self, rates: Mapping[int, float], level: float) -> int | None:
        """The next setting to try for a rate just below the level; None: nothing is left to try.

        Rates grow with the steps, or nearly so: the search is between the least strict setting
        that keeps the level and the next one tried.
        """
        kept = [steps for steps, rate in rates.items() if keeps(rate, level)]
        if not kept:
            # Nothing keeps the level yet: go tighter by halves, or for a penalty, which is negative
            # here, by doubling its weight.
            steps = min(rates)
            tighter = steps // 2 if self.tightest == 0 else max(self.tightest, 2 * steps)
            return tighter if steps > self.tightest else None
        low = max(kept)
        gap = level - rates[low]
        if gap <= NEAR or low == self.loosest:
            return None
        # No setting was too loose so far: go up by about twice the missing share.
        looser = [steps for steps in rates if steps > low]
        if not looser:
            return min(self.loosest, low + max(1, math.ceil(2 * gap * self.steps_per_unit)))
        high = min(looser)
        if high - low == 1:
            return None
        width, rise = high - low, rates[high] - rates[low]
        # Linear interpolation towards just below the level; halving where the rate jumps. Never
        # nearer than a tenth to either end, so that the interval shrinks at every try.
        share = 0.5 if rise > STEEP else (gap - NEAR / 2) / rise
        return low + min(width - 1, max(1, round(min(0.9, max(0.1, share)) * width)))


def keeps(rate: float, level: float) -> bool:
    return not exceeds(rate, level)


def tried(
    method: Method, levels: Sequence[float], k: int, measure: Measure, tries: int = TRIES
) -> Iterator[tuple[Method, StudyRow]]:
    """The settings of a rival in the order tried, with their results; the same at every call."""
    grid = LevelGrid.for_method(method, levels, k)
    if grid is None:
        yield method, measure(method)
        return
    rates: dict[int, float] = {}

    def at(steps: int) -> tuple[Method, StudyRow]:
        setting = replace(method, level=grid.level(steps))
        row = measure(setting)
        rates[steps] = rate_of(row, k)
        return setting, row

    for steps in grid.first:
        yield at(steps)
    for level in levels:
        for _ in range(tries):
            found = grid.next(rates, level)
            if found is None:
                break
            yield at(found)


def best_setting(results: Sequence[tuple[Method, StudyRow]], level: float, k: int) -> Method | None:
    """Of the settings that keep the level, the one with the best NDCG; None where none does."""
    kept = [(method, row) for method, row in results if keeps(rate_of(row, k), level)]
    if not kept:
        return None
    # Of equal NDCG, the one that uses more of the limit.
    return max(kept, key=lambda one: (one[1].metrics[f"ndcg@{k}"] or 0.0, rate_of(one[1], k)))[0]


def rate_of(row: StudyRow, k: int) -> float:
    """The share of the group that a limit is on; infinite where nothing was shown."""
    rate = row.metrics[COUNTED if COUNTED in row.metrics else f"popularity_rate@{k}"]
    return math.inf if rate is None else float(rate)


# ---- All methods, limits and seeds ---------------------------------------------------------------
@dataclass(frozen=True)
class SearchTask:
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

        def result_of(study: Study, method: Method) -> StudyRow:
            row = study.row(method, self.seed)
            if row is not None:
                return row
            task = Task(study, self.methods, self.seed)
            # The ranker or policy is trained once for all settings of all re-rankers over it.
            if not part:
                part.append(task.part(dataset))
            model, seconds = part[0]
            return task.evaluate(method, model, dataset, seconds)

        for method in self.methods:
            for counting, shares in by_counting(self.limits).items():
                study = study_under(self.study, method, counting)
                measure = counted(study, counting, self.seed, result_of)
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
    bound = [method for method in methods if method.capabilities.levels is Levels.TRAINED]
    # Models that are trained for one level are a training per level; all others are trained once
    # and set to levels by a search.
    each_level = [method.limited_to(share) for method in bound for share in shares]
    tasks: list[Work[StudyRow]] = [*study.tasks(each_level, seeds, on_row)]
    others = [method for method in methods if method not in bound]
    for trained in sorted({method.trained for method in others}, key=longest_first):
        sharing = tuple(method for method in others if method.trained == trained)
        tasks += [SearchTask(study, sharing, tuple(limits), seed, tries) for seed in seeds]
    for row in engine.each(tasks):
        on_row(row)


@dataclass(frozen=True)
class MethodAtLimit:
    """A method under a limit: with which setting under each seed, None where none keeps it."""

    limit: Limit
    method: Method
    settings: tuple[Method | None, ...]


def methods_at_limits(
    study: Study,
    methods: Sequence[Method],
    limits: Sequence[Limit],
    seeds: Sequence[int],
    *,
    tries: int = TRIES,
) -> list[MethodAtLimit]:
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
                    measure = counted(where, counting, seed, stored(seed))
                    results = list(tried(method, shares, k, measure, tries))
                    settled = {share: best_setting(results, share, k) for share in shares}
                for share, setting in settled.items():
                    best[replace(counting, share=share), method, seed] = setting
    return [
        MethodAtLimit(limit, method, tuple(best[limit, method, seed] for seed in seeds))
        for limit in limits
        for method in methods
    ]


def stored(seed: int) -> Results:
    """Results of a seed that are on disk."""
    return lambda study, method: study.made(method, seed)


def counted(study: Study, counting: Limit, seed: int, result_of: Results) -> Measure:
    """Results with the share as the limit counts it, where that is not the share of showings."""
    if counting.is_plain:
        return lambda method: result_of(study, method)

    def measured(method: Method) -> StudyRow:
        row = result_of(study, method)
        lists, group = study.lists(method, seed), study.dataset().sensitive
        share = counted_share(counting, lists, group, max(study.ks))
        name = f"{row.method} ({counting_words(counting)})"
        return replace(row, method=name, metrics={**row.metrics, COUNTED: finite(share)})

    return measured
