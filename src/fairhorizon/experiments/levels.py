"""How accurate each method is when at most a given share of what is shown is popular."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairhorizon.agents.base import Recommender
from fairhorizon.agents.methods import Method
from fairhorizon.engines.processes import Work, each
from fairhorizon.evaluation.short_term import relevance
from fairhorizon.experiments.compare import summary_row
from fairhorizon.experiments.dials import TRIES, Judge, best_setting, rate_of, tried
from fairhorizon.experiments.study import Row, Study, Task, longest_first
from fairhorizon.metrics.accuracy import hit_matrix, ndcg
from fairhorizon.metrics.significance import holm, paired_t_test

LEVELS = (0.85, 0.65, 0.37)
RANKERS = ("gru4rec", "sasrec", "ease", "itemknn")  # the strongest there are
RERANKERS = ("foe", "quota", "penalty")
METHODS = ("fcpo:strong", *(f"{ranker}+{how}" for ranker in RANKERS for how in RERANKERS))

ABOVE = 0.0005  # a popularity rate this little above the level is told as one that keeps it


def is_ours(method: Method) -> bool:
    """Served at the level itself; all others are rivals."""
    return method.abilities.holds_level


@dataclass(frozen=True)
class Search:
    """Rivals that share what is trained, under one seed: every setting that is tried."""

    study: Study
    methods: tuple[Method, ...]
    levels: tuple[float, ...]
    seed: int
    tries: int

    def prepare(self) -> None:
        self.study.dataset()

    def rows(self) -> Iterator[Row]:
        task = Task(self.study, self.methods, self.seed)
        dataset = self.study.dataset()
        part: list[tuple[Recommender, float]] = []  # trained or loaded when first needed

        def judge(method: Method) -> Row:
            row = self.study.row(method, self.seed)
            if row is not None:
                return row
            if not part:
                part.append(task.part(dataset))
            model, seconds = part[0]
            return task.judge(method, model, dataset, seconds)

        for method in self.methods:
            for _, row in tried(method, self.levels, max(self.study.ks), judge, self.tries):
                yield row


def run_levels(
    study: Study,
    methods: Sequence[Method],
    levels: Sequence[float],
    seeds: Sequence[int],
    *,
    tries: int = TRIES,
    jobs: int = 1,
    on_row: Callable[[Row], object] = lambda _: None,
) -> None:
    """Make every result that is missing; `on_row` hears of each, those at hand included."""
    ours = [method.limited_to(level) for method in methods if is_ours(method) for level in levels]
    rivals = [method for method in methods if not is_ours(method)]
    tasks: list[Work[Row]] = [*study.tasks(ours, seeds, on_row)]
    for trained in sorted({method.trained for method in rivals}, key=longest_first):
        sharing = tuple(method for method in rivals if method.trained == trained)
        tasks += [Search(study, sharing, tuple(levels), seed, tries) for seed in seeds]
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


def level_rows(study: Study, found: Sequence[Standing], seeds: Sequence[int]) -> list[Row]:
    """A row for each: mean and deviation over the seeds, none where a seed's level is not kept.

    `settings` are by seed; `above` counts the seeds with a rate above the level, which only a
    method that is served at the level itself can have.
    """
    k = max(study.ks)
    rows = [_level_row(study, one, seeds, k) for one in found]
    for level in dict.fromkeys(one.level for one in found):
        rivals = [row for row in rows if row["level"] == level and not row["ours"]]
        means = {row["method"]: _mean(row, f"ndcg@{k}") for row in rivals}
        ranked = [(mean, name) for name, mean in means.items() if mean is not None]
        for row in rivals:
            row["best_rival"] = bool(ranked) and row["method"] == max(ranked)[1]
    return rows


def _level_row(study: Study, one: Standing, seeds: Sequence[int], k: int) -> Row:
    results = [
        _at_hand(study, seed)(setting)
        for setting, seed in zip(one.settings, seeds, strict=True)
        if setting is not None
    ]
    rates = [rate_of(row, k) for row in results]
    is_whole = len(results) == len(seeds)
    summary = summary_row(results) if is_whole else {"metrics": {}, "seconds": {}, "notes": []}
    return {
        "level": one.level,
        "dataset": study.dataset().split.name,
        "method": one.method.name,
        "protocol": study.protocol.value,
        "mode": study.mode.value,
        "seeds": list(seeds),
        "ours": is_ours(one.method),
        "best_rival": False,
        "settings": [None if setting is None else str(setting) for setting in one.settings],
        "above": sum(rate > one.level + ABOVE for rate in rates),
        **{key: summary[key] for key in ("metrics", "seconds", "notes")},
    }


def gains(
    study: Study, found: Sequence[Standing], rows: Sequence[Row], seeds: Sequence[int]
) -> list[Row]:
    """Ours against the best rival of each level; rows as `level_rows` makes them.

    The t-test is paired over users, whose NDCG is the mean over the seeds; Holm's correction is
    for all levels together.
    """
    k = max(study.ks)
    best = {
        row["level"]: (one, row) for one, row in zip(found, rows, strict=True) if row["best_rival"]
    }
    compared = []
    for one, row in zip(found, rows, strict=True):
        own = _mean(row, f"ndcg@{k}")
        if not row["ours"] or row["level"] not in best or own is None:
            continue
        rival, of_rival = best[row["level"]]
        theirs = _mean(of_rival, f"ndcg@{k}")
        assert theirs is not None
        pair = [ndcg_per_user(study, which.settings, seeds) for which in (one, rival)]
        compared.append(
            {
                "level": row["level"],
                "method": row["method"],
                "rival": of_rival["method"],
                "ndcg": own,
                "rival_ndcg": theirs,
                "gain": own / theirs - 1 if theirs else None,
                "gini_difference": _difference(row, of_rival, f"gini@{k}"),
                "rate_difference": _difference(row, of_rival, f"popularity_rate@{k}"),
                "users": int((~np.isnan(pair[0])).sum()),
                "t_test": _finite(paired_t_test(*pair)),
            }
        )
    corrected = holm([np.nan if one["t_test"] is None else one["t_test"] for one in compared])
    return [
        row | {"t_test_corrected": _finite(value)}
        for row, value in zip(compared, corrected, strict=True)
    ]


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


def _at_hand(study: Study, seed: int) -> Judge:
    """Looks results up that have been made."""

    def look_up(method: Method) -> Row:
        row = study.row(method, seed)
        if row is None:
            raise ValueError(f"{method} has not been run with seed {seed}")
        return row

    return look_up


def _mean(row: Row, metric: str) -> float | None:
    value: float | None = (row["metrics"].get(metric) or {}).get("mean")
    return value


def _difference(row: Row, other: Row, metric: str) -> float | None:
    own, theirs = _mean(row, metric), _mean(other, metric)
    return None if own is None or theirs is None else own - theirs


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
