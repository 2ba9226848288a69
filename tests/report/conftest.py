import pytest


@pytest.fixture(scope="session")
def make_row():
    """A result row as the experiments make it, the same at every K."""

    def make(method, *, ndcg=0.1, std=0.001, gini=0.8, popularity=0.5, **other):
        values = {"recall": ndcg, "f1": ndcg / 2, "ndcg": ndcg, "gini": gini}
        values["popularity_rate"] = popularity
        metrics = {
            f"{name}@{k}": {"mean": value, "std": std}
            for k in (5, 10, 20)
            for name, value in values.items()
        }
        row = {"dataset": "ml-100k", "method": method, "protocol": "standard", "mode": "one-shot"}
        return row | {"seeds": [0, 1, 2], "alpha_prime": None, "metrics": metrics} | other

    return make
