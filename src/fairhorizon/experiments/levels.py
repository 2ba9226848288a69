"""How accurate each method is when at most a given share of what is shown is popular."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairhorizon.agents.base import Recommender
from fairhorizon.agents.methods import Method
from fairhorizon.engines.processes import Work, each
from fairhorizon.evaluation.short_term import relevance
from fairhorizon.experiments.dials import TRIES, Measure, best_setting, rate_of, tried
from fairhorizon.experiments.rows import summary_row
from fairhorizon.experiments.study import Study, Task, longest_first
from fairhorizon.metrics.accuracy import hit_matrix, ndcg
from fairhorizon.metrics.significance import holm, paired_t_test
from fairhorizon.results.spread import finite
from fairhorizon.results.studies import GainRow, LevelRow, OverSeeds, StudyRow

LEVELS = (0.85, 0.65, 0.37)
RANKERS = ("gru4rec", "sasrec", "ease", "itemknn")  # the strongest there are
RERANKERS = ("foe", "quota", "penalty")
LATER = ("pmmf", "fairco", "tfrom")  # re-rankers that look at what was shown so far
METHODS = (
    "fcpo",
    # with the same allocation as ours, so that one can see what is gained by what
    *("stack+lists", "gru4rec+lists", "ease+lists", "popularity+quota"),
    *(f"{ranker}+{how}" for ranker in RANKERS for how in RERANKERS),
    *(f"{ranker}+{how}" for ranker in ("stack", "ease") for how in LATER),
)

ABOVE = 0.0005  # a popularity rate this little above the level is reported as keeping it


def is_ours(method: Method) -> bool:
    """Served at the level itself; all others are rivals."""
    return method.abilities.aims_at_level


@dataclass(frozen=True)
class RivalSearch:
    """Rivals that share what is trained, under one seed: every setting that is tried."""

    study: Study
    methods: tuple[Method, ...]
    levels: tuple[float, ...]
    seed: int
    tries: int

    def prepare(self) -> None:
        self.study.dataset()

    def rows(self) -> Iterator[StudyRow]:
        task = Task(self.study, self.methods, self.seed)
        dataset = self.study.dataset()
        part: list[tuple[Recommender, float]] = []  # trained or loaded when first needed

        def measure(method: Method) -> StudyRow:
            row = self.study.row(method, self.seed)
            if row is not None:
                return row
            if not part:
                part.append(task.part(dataset))
            model, seconds = part[0]
            return task.evaluate(method, model, dataset, seconds)

        for method in self.methods:
            for _, row in tried(method, self.levels, max(self.study.ks), measure, self.tries):
                yield row


def run_levels(
    study: Study,
    methods: Sequence[Method],
    levels: Sequence[float],
    seeds: Sequence[int],
    *,
    tries: int = TRIES,
    jobs: int = 1,
    on_row: Callable[[StudyRow], object] = lambda _: None,
) -> None:
    """Make every result that is missing; `on_row` is called with each, those at hand included."""
    ours = [method.limited_to(level) for method in methods if is_ours(method) for level in levels]
    rivals = [method for method in methods if not is_ours(method)]
    tasks: list[Work[StudyRow]] = [*study.tasks(ours, seeds, on_row)]
    for trained in sorted({method.trained for method in rivals}, key=longest_first):
        sharing = tuple(method for method in rivals if method.trained == trained)
        tasks += [RivalSearch(study, sharing, tuple(levels), seed, tries) for seed in seeds]
    for row in each(tasks, jobs):
        on_row(row)


@dataclass(frozen=True)
class Standing:
    """A method at a level: with which setting under each seed, None where none keeps the level."""

    level: float
    method: Method
    settings: tuple[Method | None, ...]


def standings(
    study: Study,
    methods: Sequence[Method],
    levels: Sequence[float],
    seeds: Sequence[int],
    *,
    tries: int = TRIES,
) -> list[Standing]:
    """Level after level; of a rival, under each seed, the setting with the best NDCG on test."""
    k = max(study.ks)
    searched = {
        (method, seed): list(tried(method, levels, k, _at_hand(study, seed), tries))
        for method in methods
        if not is_ours(method)
        for seed in seeds
    }
    found = []
    for level in levels:
        for method in methods:
            settings = tuple(
                method.limited_to(level)
                if is_ours(method)
                else best_setting(searched[method, seed], level, k)
                for seed in seeds
            )
            found.append(Standing(level, method, settings))
    return found


def level_rows(study: Study, found: Sequence[Standing], seeds: Sequence[int]) -> list[LevelRow]:
    """A row for each: mean and deviation over the seeds, none where a seed's level is not kept.

    Only a method that is served at the level itself can have a rate above it.
    """
    k = max(study.ks)
    rows = [_level_row(study, one, seeds, k) for one in found]
    best = set()
    for level in dict.fromkeys(row.level for row in rows):
        means = {
            row.method: row.spread(f"ndcg@{k}").mean
            for row in rows
            if row.level == level and not row.ours
        }
        ranked = [(mean, name) for name, mean in means.items() if mean is not None]
        if ranked:
            best.add((level, max(ranked)[1]))
    return [
        replace(row, best_rival=not row.ours and (row.level, row.method) in best) for row in rows
    ]


def _level_row(study: Study, one: Standing, seeds: Sequence[int], k: int) -> LevelRow:
    results = [
        study.made(setting, seed)
        for setting, seed in zip(one.settings, seeds, strict=True)
        if setting is not None
    ]
    rates = [rate_of(row, k) for row in results]
    summary = summary_row(results) if len(results) == len(seeds) else None
    settings = [setting for setting in one.settings if setting is not None]
    return LevelRow(
        dataset=study.dataset().split.name,
        method=one.method.name,
        level=one.level,
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
        above=sum(rate > one.level + ABOVE for rate in rates),
    )


def gains(
    study: Study, found: Sequence[Standing], rows: Sequence[LevelRow], seeds: Sequence[int]
) -> list[GainRow]:
    """Ours against the best rival of each level; rows as `level_rows` makes them.

    The t-test is paired over users, with the mean NDCG over the seeds; Holm's correction is
    for all levels together.
    """
    best = {row.level: (one, row) for one, row in zip(found, rows, strict=True) if row.best_rival}
    compared = []
    for one, row in zip(found, rows, strict=True):
        if row.ours and row.level in best:
            rival, of_rival = best[row.level]
            pair = [ndcg_per_user(study, which.settings, seeds) for which in (one, rival)]
            gain = _gain(row, of_rival, (pair[0], pair[1]), max(study.ks))
            if gain is not None:
                compared.append(gain)
    corrected = holm([np.nan if one.t_test is None else one.t_test for one in compared])
    return [
        replace(row, t_test_corrected=finite(value))
        for row, value in zip(compared, corrected, strict=True)
    ]


def _gain(
    row: LevelRow,
    rival: LevelRow,
    per_user: tuple[NDArray[np.float64], NDArray[np.float64]],
    k: int,
) -> GainRow | None:
    """None where the accuracy is not known."""
    own, theirs = row.spread(f"ndcg@{k}").mean, rival.spread(f"ndcg@{k}").mean
    if own is None or theirs is None:
        return None
    p_value = finite(paired_t_test(*per_user))
    return GainRow(
        level=row.level,
        method=row.method,
        rival=rival.method,
        ndcg=own,
        rival_ndcg=theirs,
        gain=own / theirs - 1 if theirs else None,
        gini_difference=_difference(row, rival, f"gini@{k}"),
        rate_difference=_difference(row, rival, f"popularity_rate@{k}"),
        users=int((~np.isnan(per_user[0])).sum()),
        t_test=p_value,
        t_test_corrected=p_value,  # of one test
    )


def ndcg_per_user(
    study: Study, settings: Sequence[Method | None], seeds: Sequence[int]
) -> NDArray[np.float64]:
    """(n_users,) NDCG of the longest lists, the mean over the seeds; NaN without test items."""
    relevant = relevance(study.dataset().split.test)
    values = [
        ndcg(
            hit_matrix(study.lists(setting, seed), relevant),
            np.diff(relevant.indptr),
            max(study.ks),
        )
        for setting, seed in zip(settings, seeds, strict=True)
        if setting is not None
    ]
    mean: NDArray[np.float64] = np.mean(values, axis=0)
    return mean


def _at_hand(study: Study, seed: int) -> Measure:
    """Looks up stored results."""
    return lambda method: study.made(method, seed)


def _difference(row: OverSeeds, other: OverSeeds, metric: str) -> float | None:
    own, theirs = row.spread(metric).mean, other.spread(metric).mean
    return None if own is None or theirs is None else own - theirs
