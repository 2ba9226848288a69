"""The files of a long run: a row per step, exposure over time, and a checkpoint."""

import json
import math
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.errors import ModelError
from fairhorizon.evaluation.long_term import LongRun
from fairhorizon.files import write_atomically
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import PopularityLimit
from fairhorizon.storage import load_model, save_model
from fairhorizon.studies.long_results import CountsOverTime, RunProgress

Row = dict[str, Any]

KIND = "long-run"
# Files are written every so many steps, or seconds where steps are slow.
EVERY = 10
LONGEST = 10.0
# What reading a file of arrays raises that is not there or damaged.
UNREADABLE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error)

# One for all methods, so that the files of a folder can be read as one frame.
SCHEMA: dict[str, type[pl.DataType]] = {
    "method": pl.String,
    "seed": pl.Int64,
    "step": pl.Int64,
    "ndcg": pl.Float64,
    "recall": pl.Float64,
    "likes": pl.Float64,  # per user who was there at the start
    "showings": pl.Float64,
    "here": pl.Float64,  # the share of users who are still there
    "gini": pl.Float64,
    "limited_rate": pl.Float64,  # under the labels that the limit counts by
    "popularity_rate": pl.Float64,  # of the moment
    "popularity_rate_initial": pl.Float64,
    "popularity_rate_lagged": pl.Float64,
    "popularity_rate_retrospective": pl.Float64,
    "lorenz_share": pl.Float64,
    "step_popularity_rate": pl.Float64,
    "step_popularity_rate_initial": pl.Float64,
    "violation": pl.Float64,
    "violation_share": pl.Float64,
    "largest_overshoot": pl.Float64,
    "churn": pl.Int64,
    "churn_share": pl.Float64,
    "reward": pl.Float64,
    "coverage": pl.Float64,
    "seconds": pl.Float64,
    "price": pl.Float64,  # of the limited group; null for methods without one
    "notes": pl.String,  # JSON: other values that the method reported
    "run": pl.String,  # the key of all settings: a folder may hold runs with different ones
}


class StepRecord:
    """The files of one run, named by its method, seed and key."""

    def __init__(self, folder: Path, method: str, seed: int, key: str) -> None:
        file_name = method.replace(":", "-")  # a colon is not allowed in all file systems
        self.folder, self.name = folder, f"{file_name}-seed{seed}-{key}"
        self.identity = {"method": method, "seed": seed, "run": key}
        self.rows_file = folder / f"{self.name}.parquet"
        self.counts_file = folder / f"{self.name}-counts.npz"
        self.checkpoint_file = folder / f"{self.name}.safetensors"
        self._rows: list[Row] = []
        self._counts: list[tuple[int, NDArray[np.int64], NDArray[np.bool_]]] = []
        self._of_users: dict[str, NDArray[Any]] = {}  # of each user, at the end
        self._written, self._stored = (0, time.monotonic()), (0, time.monotonic())

    @property
    def step(self) -> int:
        """The last recorded step."""
        return len(self._rows)

    def progress(self, remarks: Sequence[str] = ()) -> RunProgress:
        """The run after that step."""
        return _progress(self._rows[-1], remarks)

    def stored_progress(self) -> RunProgress:
        """The run after the last step on disk."""
        return _progress(self.frame().row(-1, named=True), ())

    def frame(self) -> pl.DataFrame:
        """The rows on disk; none if there is no file, or it is damaged."""
        try:
            frame = pl.read_parquet(self.rows_file, glob=False)
        except (OSError, pl.exceptions.PolarsError):
            return pl.DataFrame(schema=SCHEMA)
        return frame if frame.schema == pl.Schema(SCHEMA) else pl.DataFrame(schema=SCHEMA)

    def counts(self) -> CountsOverTime | None:
        """The counts on disk; None if there is no file, or it is damaged."""
        try:
            with self.counts_file.open("rb") as content, np.load(content) as file:
                return CountsOverTime(
                    file["steps"], file["counts"].astype(np.int64), file["sensitive"]
                )
        except UNREADABLE:
            return None

    def of_users(self, what: str) -> NDArray[np.float64] | None:
        """Each user's ndcg or likes at the end; None before, or in a run of a version without."""
        try:
            with self.counts_file.open("rb") as content, np.load(content) as file:
                return file[what].astype(np.float64) if what in file else None
        except UNREADABLE:
            return None

    def has_started(self) -> bool:
        return self.rows_file.exists() or self.checkpoint_file.exists()

    def is_finished(self, steps: int) -> bool:
        return len(self.frame()) == steps and self.counts() is not None

    def sweep(self) -> None:
        """Delete the drafts of a process that was killed."""
        for draft in self.folder.glob(f".{self.name}*"):
            draft.unlink(missing_ok=True)

    def restore(self, run: LongRun) -> bool:
        """Return to the checkpoint, and a run that has just begun with it; False if there is none,
        so that the run has to start again."""
        stored = self._resume()
        if stored is None:
            return False
        try:
            run.restore(stored)
        except (KeyError, TypeError, ValueError, RuntimeError, ModelError) as error:
            raise ModelError(
                f"{self.checkpoint_file}: holds something unexpected: {error} (delete it, and the "
                "run starts again)"
            ) from error
        return True

    def _resume(self) -> dict[str, Tensor] | None:
        """Return to the checkpoint; its tensors, or None if the run has to start again."""
        counts = self.counts()
        try:
            tensors, description = load_model(self.checkpoint_file, KIND)
        except ModelError:
            return None
        step = int(description["step"])
        frame = self.frame()
        # Rows are written before the checkpoint, so fewer rows mean that a file was lost.
        if counts is None or len(frame) < step:
            return None
        # Rows after the checkpoint are dropped: the run takes these steps again.
        self._rows = frame[:step].to_dicts()
        past = zip(counts.steps.tolist(), counts.counts, counts.sensitive, strict=True)
        self._counts = [moment for moment in past if moment[0] <= step]
        self._written = self._stored = step, time.monotonic()
        return tensors

    def look(self, exposure: Exposure) -> None:
        """Record the current exposure."""
        self._counts.append((self.step, exposure.counts.copy(), exposure.sensitive.numpy().copy()))

    def add(self, row: Mapping[str, Any]) -> None:
        """Record the next step: the columns of the schema, and notes under any other name."""
        cells = {name: _cell(value) for name, value in row.items() if name in SCHEMA}
        notes = {name: _cell(value) for name, value in row.items() if name not in SCHEMA}
        # The price of the main limit has a column; those of further limits are notes.
        cells["price"] = notes.pop(f"price of {PopularityLimit.called}", None)
        cells["notes"] = json.dumps(notes) if notes else None
        self._rows.append(dict.fromkeys(SCHEMA) | cells | self.identity)

    def keep(self, tensors: Callable[[], Mapping[str, Tensor]] | None) -> bool:
        """If it is time to, write everything; with `tensors`, a checkpoint too.

        The checkpoint comes last, so that rows and exposure are never behind it.
        """
        state = tensors if self._is_due(self._stored) else None
        if state is None and not self._is_due(self._written):
            return False
        self._write()
        if state is not None:
            save_model(self.checkpoint_file, KIND, state(), {"step": self.step})
            self._stored = self.step, time.monotonic()
        return True

    def finish(self, run: LongRun) -> None:
        """Write everything and delete the checkpoint, which is no longer needed."""
        self.look(run.exposure)
        likes = run.likes_of_users().numpy()
        self._of_users = {"ndcg": run.ndcg_of_users().numpy(), "likes": likes}
        self._write()
        self.checkpoint_file.unlink(missing_ok=True)

    def _is_due(self, last: tuple[int, float]) -> bool:
        step, moment = last
        return self.step - step >= EVERY or time.monotonic() - moment > LONGEST

    def _write(self) -> None:
        steps, counts, sensitive = (np.array(column) for column in zip(*self._counts, strict=True))
        # int32 halves the largest file of a run.
        moments = {"steps": steps, "counts": counts.astype(np.int32), "sensitive": sensitive}
        arrays = moments | self._of_users
        write_atomically(self.counts_file, lambda draft: _save_arrays(draft, arrays))
        frame = pl.DataFrame(self._rows, schema=SCHEMA)
        write_atomically(self.rows_file, lambda draft: frame.write_parquet(draft))
        self._written = self.step, time.monotonic()


def _progress(row: Row, remarks: Sequence[str]) -> RunProgress:
    shares = {name: row[name] for name in ("ndcg", "gini", "limited_rate", "violation_share")}
    return RunProgress(row["method"], row["seed"], row["step"], **shares, remarks=tuple(remarks))


def _save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _cell(value: Any) -> Any:
    """Null for what is not a finite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
