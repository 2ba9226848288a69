"""The paper's Table 2, with every row computed here: means and spreads over seeds, significance."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.splits import Split
from fairhorizon.evaluation.short_term import relevance
from fairhorizon.methods import Method
from fairhorizon.metrics.accuracy import f1, hit_matrix, mean_over_users, ndcg, recall
from fairhorizon.metrics.significance import holm, paired_bootstrap, paired_t_test
from fairhorizon.metrics.user_groups import group_differences
from fairhorizon.recommenders.base import Levels
from fairhorizon.studies.rows import SummaryRow, row_content, summary_row
from fairhorizon.studies.study import Study

# Names of our methods in the paper's table.
PAPER_NAMES = {
    "mf": "MF",
    "bpr": "BPR-MF",
    "ncf": "NCF",
    "lird": "LIRD",
    "mf+foe": "MF-FOE",
    "bpr+foe": "BPR-FOE",
    "ncf+foe": "NCF-FOE",
}
PerUser = Callable[[NDArray[np.bool_], NDArray[np.int64], int], NDArray[np.float64]]
PER_USER: dict[str, PerUser] = {
    "recall": recall,
    "f1": f1,
    "ndcg": ndcg,
}


@dataclass(frozen=True)
class SignificanceRow:
    """A method against another in one metric: two-sided p-values, paired over users.

    best, second: the two; of a comparison with all others, the one and each of them.
    """

    metric: str
    best: str
    second: str
    difference: float
    users: int
    t_test: float
    bootstrap: float
    t_test_corrected: float
    bootstrap_corrected: float

    def to_json(self) -> dict[str, Any]:
        return row_content(self)


def summary_rows(study: Study, methods: Sequence[Method], seeds: Sequence[int]) -> list[SummaryRow]:
    """A row a method: mean and standard deviation over the seeds; all results must be there."""
    return [
        summary_row(
            [study.made(method, seed) for seed in seeds],
            name=method.name,
            level=method.level,
        )
        for method in methods
    ]


def significance(
    study: Study, methods: Sequence[Method], seeds: Sequence[int]
) -> list[SignificanceRow]:
    """Best against second in every accuracy metric, paired over users.

    The second is the best method of another model: a re-ranking of the best may give the same
    lists. Without another model it is the best whose lists differ; if none do, there is no row.
    A user's value is the mean over the seeds. The p-values of all metrics together are corrected
    by Holm's method, those of the t-test and those of the bootstrap each by themselves.
    """
    if len(methods) < 2:
        return []
    values = values_of_users(study, methods, seeds)
    tests: list[SignificanceRow] = []
    for name in next(iter(values.values())):
        means = {method: mean_over_users(values[method][name]) for method in methods}
        # Nobody has test items, so nobody is better.
        if any(math.isnan(mean) for mean in means.values()):
            continue
        best, *others = sorted(methods, key=lambda method: -means[method])
        second = second_to(best, others, {method: values[method][name] for method in methods})
        if second is not None:
            tests.append(_tested(name, best, second, values))
    return _corrected(tests)


def against_all(
    study: Study, reference: Method, methods: Sequence[Method], seeds: Sequence[int]
) -> list[SignificanceRow]:
    """One method against each other one, in every accuracy metric, paired over users.

    A user's value is the mean over the seeds. Holm's correction is for all lines together: the
    more methods and metrics are compared, the less a small p-value means.
    """
    values = values_of_users(study, [reference, *methods], seeds)
    return _corrected(
        [
            _tested(name, reference, method, values)
            for name, own in values[reference].items()
            if not np.isnan(own).all()  # somebody has test items
            for method in methods
            if method != reference
        ]
    )


@dataclass(frozen=True)
class UserGroupRow:
    """A method's accuracy for a group of users against all others; means over the seeds."""

    method: str
    metric: str
    group: str
    users: int
    mean: float
    others: float
    difference: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        return row_content(self)


def by_user_group(
    study: Study, methods: Sequence[Method], seeds: Sequence[int], groups: NDArray[Any]
) -> list[UserGroupRow]:
    """NDCG of the longest lists for every group of users, with Welch's interval.

    groups: (n_users,) text; "": in no group.
    """
    metric = f"ndcg@{max(study.ks)}"
    values = values_of_users(study, methods, seeds)
    return [
        UserGroupRow(str(method), metric, **asdict(found))
        for method in methods
        for found in group_differences(values[method][metric], groups)
    ]


def values_of_users(
    study: Study, methods: Sequence[Method], seeds: Sequence[int]
) -> dict[Method, dict[str, NDArray[np.float64]]]:
    """By method and metric, (n_users,) means over the seeds; NaN where a user has no test items."""
    split = study.dataset().split
    return {method: per_user(study, method, seeds, split) for method in methods}


def _tested(
    metric: str,
    method: Method,
    rival: Method,
    values: Mapping[Method, Mapping[str, NDArray[np.float64]]],
) -> SignificanceRow:
    """The line of a pair, its p-values not corrected yet."""
    own, theirs = values[method][metric], values[rival][metric]
    t_test, bootstrap = paired_t_test(own, theirs), paired_bootstrap(own, theirs)
    return SignificanceRow(
        metric=metric,
        best=str(method),
        second=str(rival),
        difference=mean_over_users(own) - mean_over_users(theirs),
        users=int((~np.isnan(own)).sum()),
        t_test=t_test,
        bootstrap=bootstrap,
        t_test_corrected=t_test,
        bootstrap_corrected=bootstrap,
    )


def _corrected(tests: Sequence[SignificanceRow]) -> list[SignificanceRow]:
    """Holm's correction for all lines, of the t-tests and of the bootstraps each by themselves."""
    corrected = zip(
        tests,
        holm([test.t_test for test in tests]),
        holm([test.bootstrap for test in tests]),
        strict=True,
    )
    return [
        replace(test, t_test_corrected=float(t), bootstrap_corrected=float(b))
        for test, t, b in corrected
    ]


def second_to(
    best: Method, others: Sequence[Method], values: Mapping[Method, NDArray[np.float64]]
) -> Method | None:
    """Of the others, best first, the one to compare the best with."""
    own = (best.base, best.preset)
    unlike = [method for method in others if (method.base, method.preset) != own]
    same_model = (
        method
        for method in others
        if not np.array_equal(values[method], values[best], equal_nan=True)
    )
    return next(iter(unlike), None) or next(same_model, None)


def per_user(
    study: Study, method: Method, seeds: Sequence[int], split: Split
) -> dict[str, NDArray[np.float64]]:
    """Each accuracy metric of each user, averaged over the seeds."""
    relevant = relevance(split.test)
    n_relevant = np.diff(relevant.indptr)
    # Users are the independent sample; seeds only average out the noise of training.
    hits = [hit_matrix(study.lists(method, seed), relevant) for seed in seeds]
    return {
        f"{name}@{k}": np.mean([function(hit, n_relevant, k) for hit in hits], axis=0)
        for k in study.ks
        for name, function in PER_USER.items()
    }


# ---- The paper's Figure 3: every method at each of its levels ------------------------------------

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of sensitive items
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # spreads of a user's scores
LIMITS = (0.2, 0.4, 0.6, 0.8, 1.0)  # FCPO's alpha', each of which is a training
LEVELS = {
    **dict.fromkeys(("foe", "quota", "lists", "control", "pmmf", "fairco", "tfrom"), SHARES),
    "penalty": WEIGHTS,
    "fcpo": LIMITS,
}


@dataclass(frozen=True)
class HypervolumeRow:
    """The areas that the levels of a method dominate, as fractions."""

    method: str
    levels: int
    gini_area: float  # of (NDCG, 1 - Gini)
    popularity_area: float  # of (NDCG, 1 - popularity rate)

    def to_json(self) -> dict[str, Any]:
        return row_content(self)


def swept(method: Method) -> list[Method]:
    """The method at every level; alone if its level is set or if it has no levels."""
    if method.level is not None or method.capabilities.levels is Levels.NONE:
        return [method]
    return [replace(method, level=level) for level in LEVELS[method.reranker or method.base]]


def curves(rows: Sequence[SummaryRow]) -> dict[str, list[SummaryRow]]:
    """The rows of each method, sorted by level."""
    lines: dict[str, list[SummaryRow]] = {}
    for row in rows:
        lines.setdefault(row.name, []).append(row)
    for line in lines.values():
        line.sort(key=lambda row: row.level or 0.0)
    return lines
