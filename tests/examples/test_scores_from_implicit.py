"""The example of implicit: its scores are a ranker that gives its lists."""

import importlib.util
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fairhorizon as fh

PATH = Path(__file__).parents[2] / "examples" / "scores_from_implicit.py"
MARKET = "synthetic:users=60,items=80,interactions_per_user=20"


@pytest.mark.filterwarnings("ignore:OpenBLAS")
def test_the_lists_of_its_scores_are_its_lists(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("scores_from_implicit", PATH)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    parts = fh.split(fh.load(MARKET))
    train = parts.train
    users, items = train.user_ids[train.users], train.item_ids[train.items]
    frame = pl.DataFrame({"user": users.tolist(), "item": items.tolist()})
    found = example.scores(frame, candidates=30)
    found.write_parquet(tmp_path / "als.parquet")
    # nothing that was taken, and everybody has 30 of the other items, best first
    assert not set(found.select("user", "item").iter_rows()) & set(frame.iter_rows())
    assert (found["user"].value_counts()["count"] == 30).all()
    model = fh.Ranked(fh.GivenScores.from_file(tmp_path / "als.parquet")).fit(parts)
    lists = fh.evaluate(model, parts, ks=[10]).lists
    # the validation item is history, too
    for user, own in enumerate(lists):
        of_user = found.filter(pl.col("user") == train.user_ids[user])["item"].to_numpy()
        seen = parts.validation.item_ids[parts.validation.items[parts.validation.users == user]]
        expected = of_user[~np.isin(of_user, seen)][:10]
        assert train.item_ids[own].tolist() == expected.tolist()
