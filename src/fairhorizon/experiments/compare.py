"""The paper's Table 2, with every row computed here: means and spreads over seeds, significance."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairhorizon.agents.methods import Method
from fairhorizon.data.splits import Split
from fairhorizon.evaluation.short_term import relevance
from fairhorizon.experiments.study import Row, Study
from fairhorizon.metrics.accuracy import f1, hit_matrix, mean_over_users, ndcg, recall
from fairhorizon.metrics.significance import holm, paired_bootstrap, paired_t_test

# the paper's rows, then what people would use today, then our method at the paper's three levels
TABLE = (
    *("mf", "bpr", "ncf", "lird", "mf+foe", "bpr+foe", "ncf+foe"),
    *("popularity", "als", "itemknn", "ease", "gru4rec", "sasrec"),
    *("fcpo:paper@0.85", "fcpo:paper@0.65", "fcpo:paper@0.36"),
)

PerUser = Callable[[NDArray[np.bool_], NDArray[np.int64], int], NDArray[np.float64]]
PER_USER: dict[str, PerUser] = {
    "recall": recall,
    "f1": f1,
    "ndcg": ndcg,
}


def summary_rows(study: Study, methods: Sequence[Method], seeds: Sequence[int]) -> list[Row]:
    """A row a method: mean and standard deviation over the seeds; all results must be there."""
    return [summary_row([_there(study, method, seed) for seed in seeds]) for method in methods]


def summary_row(rows: Sequence[Row]) -> Row:
    """Rows that differ in nothing but the seed, as one."""
    first = rows[0]
    return {
        **{key: first[key] for key in ("dataset", "method", "protocol", "mode", "alpha_prime")},
        "seeds": [row["seed"] for row in rows],
        "metrics": {
            name: _spread([row["metrics"][name] for row in rows]) for name in first["metrics"]
        },
        "seconds": {
            name: float(np.mean([row["seconds"][name] for row in rows]))
            for name in first["seconds"]
        },
        "settings": first["settings"],
        "notes": sorted({note for row in rows for note in row["notes"]}),
    }


def _spread(values: Sequence[float | None]) -> Mapping[str, float | None]:
    """Mean and sample standard deviation (0 of one seed); null where a value is not finite."""
    if any(value is None for value in values):
        return {"mean": None, "std": None}
    sample = np.array(values, dtype=np.float64)
    return {
        "mean": float(sample.mean()),
        "std": float(sample.std(ddof=1)) if len(sample) > 1 else 0.0,
    }


def significance(study: Study, methods: Sequence[Method], seeds: Sequence[int]) -> list[Row]:
    """Best against runner-up in every accuracy metric, paired over users.

    A user's value is the mean over the seeds. The p-values of all metrics together are corrected
    by Holm's method, those of the t-test and those of the bootstrap each by themselves.
    """
    if len(methods) < 2:
        return []
    split = study.dataset().split
    values = {method: per_user(study, method, seeds, split) for method in methods}
    tests: list[Row] = []
    for name in next(iter(values.values())):
        means = {method: mean_over_users(values[method][name]) for method in methods}
        if any(math.isnan(mean) for mean in means.values()):
            continue  # nobody has test items
        best, second = sorted(methods, key=lambda method: -means[method])[:2]
        pair = values[best][name], values[second][name]
        tests.append(
            {
                "metric": name,
                "best": str(best),
                "second": str(second),
                "difference": means[best] - means[second],
                "users": int((~np.isnan(pair[0])).sum()),
                "t_test": paired_t_test(*pair),
                "bootstrap": paired_bootstrap(*pair),
            }
        )
    for test in ("t_test", "bootstrap"):
        corrected = holm([row[test] for row in tests])
        for row, value in zip(tests, corrected, strict=True):
            row[f"{test}_corrected"] = float(value)
    return tests


def per_user(
    study: Study, method: Method, seeds: Sequence[int], split: Split
) -> dict[str, NDArray[np.float64]]:
    """Each accuracy metric of each user, averaged over the seeds."""
    relevant = relevance(split.test)
    n_relevant = np.diff(relevant.indptr)
    hits = [hit_matrix(study.lists(method, seed), relevant) for seed in seeds]
    return {
        f"{name}@{k}": np.mean([function(hit, n_relevant, k) for hit in hits], axis=0)
        for k in study.ks
        for name, function in PER_USER.items()
    }


def _there(study: Study, method: Method, seed: int) -> Row:
    row = study.row(method, seed)
    if row is None:
        raise ValueError(f"{method} has not been run with seed {seed}")
    return row
