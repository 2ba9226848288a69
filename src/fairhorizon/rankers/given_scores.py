"""Scores that another program has computed, read from a file: a ranker behind every re-ranker."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.columns import Origin, as_column, known_codes, to_numbers
from fairhorizon.data.given_file import GivenFile
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.data.tables import Table, find_columns, read_table
from fairhorizon.errors import DataError
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.vocabulary import OnEpoch

COLUMNS = {"user": 0, "item": 1, "score": 2}  # by name, or by position in a file without header


class GivenScores(Ranker[GivenFile]):
    """Scores of another program; an item without a score ranks behind all that have one.

    They have to be made from the training items alone: nothing here can tell whether they were.
    """

    method = "scores"
    in_thread = True
    uses_weights = True  # whoever made the scores may have; there is nothing to warn of
    config_class = GivenFile

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The ranker of a file with the columns user, item and score, before its fit."""
        return cls(GivenFile.from_path(path))

    # the scores of user u are scores_[indptr_[u]:indptr_[u + 1]], those of items_ at the same place
    indptr_: Tensor  # (n_users + 1,)
    items_: Tensor  # (n,)
    scores_: Tensor  # (n,)
    lowest_: Tensor  # (n_users,) of the items without a score
    n_items_: int

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:  # noqa: ARG002  # no epochs
        log = split.train
        given = read_scores(self.config.path(self.method), log)
        order = np.lexsort((given.items, given.users))
        counts = np.bincount(given.users, minlength=log.n_users)
        starts = np.append(0, np.cumsum(counts))
        scores = given.scores[order]
        best, worst = (ufunc.reduceat(scores, starts[:-1]) for ufunc in (np.maximum, np.minimum))
        # one spread below the worst; 1 below where all scores are the same
        spread = np.where(best > worst, best - worst, 1.0)
        self.indptr_ = torch.from_numpy(starts)
        self.items_ = torch.from_numpy(given.items[order])
        self.scores_ = torch.from_numpy(scores).float()
        self.lowest_ = torch.from_numpy(worst - spread).float()
        self.n_items_ = log.n_items

    def refitted(self, split: Split, *, on_epoch: OnEpoch | None = None) -> "GivenScores":  # noqa: ARG002
        """The same scores, whatever has been added to the log."""
        other = GivenScores(self.config, seed=self.seed)
        other.restore(self.tensors())
        other.fingerprint_ = split.train.fingerprint()
        return other

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # do not react
        starts, counts = self.indptr_[users], self.indptr_[users + 1] - self.indptr_[users]
        rows = torch.arange(len(users)).repeat_interleave(counts)
        # 0, 1, ... within every user
        within = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
        at = starts[rows] + within
        table = self.lowest_[users, None].repeat(1, self.n_items_)
        table[rows, self.items_[at]] = self.scores_[at]
        return table

    def tensors(self) -> dict[str, Tensor]:
        return {
            "indptr": self.indptr_,
            "items": self.items_,
            "scores": self.scores_,
            "lowest": self.lowest_,
            "n_items": torch.tensor(self.n_items_),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.indptr_, self.items_ = tensors["indptr"], tensors["items"]
        self.scores_, self.lowest_ = tensors["scores"], tensors["lowest"]
        self.n_items_ = int(tensors["n_items"])


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Scores of pairs of a user and an item, by their codes; every pair once."""

    users: NDArray[np.int64]  # (n,)
    items: NDArray[np.int64]  # (n,)
    scores: NDArray[np.float64]  # (n,)


def read_scores(path: Path, log: Interactions) -> ScoredPairs:
    """Read scores of the users and items of a log; every user needs one.

    An id that the log does not have, a pair that stands twice, a user without a score, and a score
    that is no finite number are a DataError with file and line.
    """
    table = _npz_table(path) if path.suffix.lower() == ".npz" else read_table(path, names=COLUMNS)
    found = find_columns(table, dict.fromkeys(COLUMNS), COLUMNS)
    if found["score"] is None:
        table.origin.fail(
            "no column looks like the score",
            remedy=f"the columns are {', '.join(map(repr, table.frame.columns))}: call one `score`",
        )
    columns = {role: as_column(table.frame[str(name)]) for role, name in found.items()}
    codes = {
        role: known_codes(columns[role], str(found[role]), ids, table.origin)
        for role, ids in (("user", log.user_ids), ("item", log.item_ids))
    }
    for role, own in codes.items():
        if (own < 0).any():
            row = int((own < 0).argmax())
            table.origin.fail(
                f"{role} {columns[role][row]!r} is not in {log.name or 'the data'}",
                row,
                f"{int((own < 0).sum()):,} of {len(own):,} rows have such a {role}: score the "
                "users and items of the data, under its ids",
            )
    users, items = codes["user"], codes["item"]
    scores = to_numbers(columns["score"], str(found["score"]), table.origin)
    first = np.unique(users * log.n_items + items, return_index=True)[1]
    if len(first) < len(users):
        row = int(np.setdiff1d(np.arange(len(users)), first)[0])
        table.origin.fail(
            f"user {log.user_ids[users[row]]} and item {log.item_ids[items[row]]} have a score "
            "already",
            row,
            "drop one of the rows",
        )
    unscored = np.flatnonzero(np.bincount(users, minlength=log.n_users) == 0)
    if len(unscored):
        raise DataError(
            f"user {log.user_ids[unscored[0]]} has no score, nor have {len(unscored) - 1:,} others "
            f"of {log.n_users:,}",
            file=path,
            remedy="score some items for every user; those of popularity will do",
        )
    return ScoredPairs(users, items, scores)


def _npz_table(path: Path) -> Table:
    """The arrays user, item and score of a NumPy archive as the columns of a table."""
    remedy = "write it with numpy.savez(FILE, user=..., item=..., score=...), ids as numbers or str"
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"cannot be read: {error}", file=path, remedy=remedy) from None
    if missing := [name for name in COLUMNS if name not in arrays]:
        raise DataError(f"there is no array {missing[0]!r}", file=path, remedy=remedy)
    lengths = {arrays[name].shape for name in COLUMNS}
    if len(lengths) > 1 or arrays["user"].ndim != 1:
        raise DataError(
            f"the arrays have the shapes {', '.join(str(arrays[name].shape) for name in COLUMNS)}",
            file=path,
            remedy="give three of one length",
        )
    frame = pl.DataFrame({name: pl.Series(arrays[name]) for name in COLUMNS})
    return Table(frame, Origin(path), header=True)
