"""Scores of a scorer of LensKit, as a ranker behind the limits of this package.

LensKit 2025.8.1 needs pandas 2, so it has an environment of its own, with the CPU build of torch
first; the tests leave it out.

    python -m venv lenskit && lenskit/bin/pip install lenskit==2025.8.1
    fairhorizon data split ml-100k --out parts
    lenskit/bin/python examples/scores_from_lenskit.py parts/train.csv iknn.csv
    fairhorizon compare --data parts --split given --scores iknn=iknn.csv \\
        --methods scores:iknn,scores:iknn+lists@0.4,itemknn,itemknn+lists@0.4 --seeds 1
"""

import argparse
from pathlib import Path

import pandas as pd
from lenskit.batch import recommend
from lenskit.data import from_interactions_df
from lenskit.knn import ItemKNNScorer
from lenskit.pipeline import topn_pipeline

CANDIDATES = 200  # scored items of a user; all others rank behind them


def scores(train: pd.DataFrame, candidates: int = CANDIDATES) -> pd.DataFrame:
    """The best items of every user that the user has not taken yet."""
    data = from_interactions_df(train[["user", "item"]], user_col="user", item_col="item")
    pipeline = topn_pipeline(ItemKNNScorer(max_nbrs=20, feedback="implicit"), n=candidates)
    pipeline.train(data)
    lists = recommend(pipeline, sorted(train["user"].unique()), n_jobs=1).to_df()
    return lists.rename(columns={"user_id": "user", "item_id": "item"})[["user", "item", "score"]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="scores of item-kNN")
    parser.add_argument("train", type=Path, help="CSV with user and item")
    parser.add_argument("out", type=Path, help="CSV file to write")
    paths = parser.parse_args()
    scores(pd.read_csv(paths.train)).to_csv(paths.out, index=False)
