"""Scores of ALS from the package implicit, as a ranker behind the limits of this one.

    pip install -c constraints.txt implicit
    fairhorizon data split ml-100k --out parts
    python examples/scores_from_implicit.py parts/train.csv als.parquet
    fairhorizon compare --data parts --split given --scores als=als.parquet \\
        --methods scores:als,scores:als+lists@0.4,als,als+lists@0.4 --seeds 1

Any program can take the place of this one: it reads the training items and nothing else, and writes
user, item and score.
"""

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix

CANDIDATES = 200  # scored items of a user; all others rank behind them


def scores(train: pl.DataFrame, candidates: int = CANDIDATES) -> pl.DataFrame:
    """The best items of every user that the user has not taken yet."""
    users, rows = np.unique(train["user"].to_numpy(), return_inverse=True)
    items, columns = np.unique(train["item"].to_numpy(), return_inverse=True)
    taken = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)))
    # implicit multiplies what was taken by alpha, the confidence of Hu, Koren and Volinsky.
    model = AlternatingLeastSquares(factors=64, alpha=10.0, random_state=0, num_threads=1)
    model.fit(taken, show_progress=False)
    everybody = np.arange(len(users))
    best, values = model.recommend(everybody, taken, N=min(candidates, len(items)))
    # Where a user has fewer items left, implicit fills the rest with the lowest number there is.
    known = values > np.finfo(np.float32).min
    owner = np.broadcast_to(everybody[:, None], best.shape)
    return pl.DataFrame(
        {"user": users[owner[known]], "item": items[best[known]], "score": values[known]}
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="scores of ALS")
    parser.add_argument("train", type=Path, help="CSV with user and item")
    parser.add_argument("out", type=Path, help="Parquet file to write")
    paths = parser.parse_args()
    scores(pl.read_csv(paths.train)).write_parquet(paths.out)
