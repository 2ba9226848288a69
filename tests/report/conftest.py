import pytest

from fairhorizon.metrics.spread import Spread
from fairhorizon.studies.rows import SummaryRow
from fairhorizon.vocabulary import Mode, Protocol


@pytest.fixture(scope="session")
def make_metrics():
    """The metrics of a result row, the same at every K."""

    def make(*, ndcg=0.1, std=0.001, gini=0.8, popularity=0.5):
        values = {"recall": ndcg, "f1": ndcg / 2, "ndcg": ndcg, "gini": gini}
        values["popularity_rate"] = popularity
        return {
            f"{name}@{k}": Spread(value, std) for k in (5, 10, 20) for name, value in values.items()
        }

    return make


@pytest.fixture(scope="session")
def make_row(make_metrics):
    """A result row as the studies make it; `level` is its setting of fairness, if it has one."""

    def make(name, level=None, *, seeds=(0, 1, 2), metrics=None, **other):
        where = {"dataset": "ml-100k", "protocol": Protocol.STANDARD}
        where |= {key: other.pop(key) for key in tuple(other) if key in where}
        return SummaryRow(
            method=name if level is None else f"{name}@{level:g}",
            level=level,
            mode=Mode.ONE_SHOT,
            seeds=seeds,
            metrics={**make_metrics(**other), **(metrics or {})},
            seconds={},
            notes=(),
            name=name,
            alpha_prime=1.0 if level is None else level,
            settings={},
            **where,
        )

    return make
