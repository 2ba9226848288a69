"""The example of LensKit, where it is installed: it needs an older pandas than the other tests."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("lenskit")
PATH = Path(__file__).parents[2] / "examples" / "scores_from_lenskit.py"


def test_scores_are_of_items_that_the_user_has_not_taken() -> None:
    import pandas as pd

    spec = importlib.util.spec_from_file_location("scores_from_lenskit", PATH)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    # Every item beside the next ones on a circle of twelve; five of them each.
    taken = {(user, (user + n) % 12) for user in range(12) for n in range(5)}
    found = example.scores(pd.DataFrame(sorted(taken), columns=["user", "item"]), candidates=3)
    assert list(found.columns) == ["user", "item", "score"]
    assert found["user"].value_counts().tolist() == [3] * 12
    assert not taken & set(zip(found["user"], found["item"], strict=True))
    assert found.groupby("user")["score"].apply(lambda own: own.is_monotonic_decreasing).all()
