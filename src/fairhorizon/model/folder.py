"""A fitted model on disk: one folder, with one writer and one reader.

    run.json              what was fitted on which data, and a checksum of every file below
    model.safetensors     the fitted method
    log.parquet           its log; without it, run.json says where the log is
    items.parquet         the table of items
    observed.parquet      rows that came after the fit
    retention.safetensors what a like is worth for later, learned from a record of responses

`fairhorizon fit` and `Model.save` write it; commands, `open_model` and the service read it. The
checkpoint of a training and the metrics of an evaluation may stand beside these files. They change
while the model stays the same, so they have no checksum.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from fairhorizon import __version__
from fairhorizon.data.frames import from_arrays, idle_ids
from fairhorizon.data.interactions import Interactions, all_rows
from fairhorizon.data.items import ItemTable
from fairhorizon.data.loading import load_items
from fairhorizon.datasets import DataSpec
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.fcpo.retention.replay import RETENTION_FILE, FittedRetention
from fairhorizon.files import sha256, write_atomically, write_json, written_together
from fairhorizon.limits.language import Limit, LimitError
from fairhorizon.methods import load_method
from fairhorizon.model.card import CARD, FORMAT, LogInfo, ModelCard
from fairhorizon.model.observe import ObservedRows, joined, names_of
from fairhorizon.recommenders.base import Recommender
from fairhorizon.storage import understood

MODEL, LOG, ITEMS = "model.safetensors", "log.parquet", "items.parquet"
OBSERVED, METRICS = "observed.parquet", "metrics.json"
NO_FRAMES: Mapping[str, pl.DataFrame] = MappingProxyType({})


@dataclass(frozen=True)
class ModelFolder:
    """The folder of a fitted model, which need not be there yet."""

    folder: Path

    @property
    def card_file(self) -> Path:
        return self.folder / CARD

    @property
    def metrics_file(self) -> Path:
        return self.folder / METRICS

    def write(
        self,
        recommender: Recommender,
        data: DataSpec,
        *,
        limits: Sequence[str] = (),
        item_table: str | None = None,
        retention: FittedRetention | None = None,
        asked: str | None = None,
        log: LogInfo | None = None,
        frames: Mapping[str, pl.DataFrame] = NO_FRAMES,
    ) -> None:
        """Write all files of a model, or none.

        data: what it was fitted on. A source or a table that is in the folder goes by its name.
        frames: the tables that the folder has, by file name.
        """
        with written_together() as files:
            recommender.save(self.folder / MODEL)
            if retention is not None:
                retention.save(self.folder / RETENTION_FILE)
            for name, frame in frames.items():
                write_atomically(self.folder / name, frame.write_parquet)
            card = {
                "format": FORMAT,
                "fairhorizon": __version__,
                "status": "finished" if recommender.finished_ else "interrupted",
                "data": data.model_dump(mode="json"),
                "limits": list(limits),
                "item_table": item_table,
                **recommender.description(),
                **({} if asked is None else {"asked": asked}),
                **({} if log is None else {"log": log.model_dump()}),
                "files": {path.name: sha256(draft) for draft, path in files},
            }
            # Last: if the process dies while files are moved into place, the old checksums refuse
            # the new files.
            write_json(self.card_file, card)
        # Files of the model that was here before.
        for name in {RETENTION_FILE, LOG, ITEMS, OBSERVED} - card["files"].keys():
            (self.folder / name).unlink(missing_ok=True)

    def card(self) -> ModelCard:
        """The content of run.json; ModelError if it is missing or of no use."""
        return ModelCard.read(self.folder)

    def has(self, name: str) -> bool:
        """Whether run.json lists this file as part of the model."""
        return name in self.card().files

    def checked(self, name: str) -> Path:
        """The path of a file of the model; ModelError unless its checksum is that of run.json."""
        path, files = self.folder / name, self.card().files
        if name not in files:
            raise ModelError(f"{path}: {CARD} does not name this file (fit it again)")
        if not path.is_file():
            raise ModelError(f"{path}: is missing (copy the whole folder, or fit it again)")
        if sha256(path) != files[name]:
            raise ModelError(
                f"{path}: has changed since it was written, its checksum is not that of {CARD} "
                "(copy the whole folder again, or fit it again)"
            )
        return path

    def recommender(self, alpha_prime: float | None = None) -> Recommender:
        """The fitted method, serving at the level of the fit or at `alpha_prime`."""
        file, card = self.checked(MODEL), self.card()
        with understood(file):
            model = load_method(file)
            # Through JSON, as the card was: tuples become lists.
            described = json.loads(json.dumps(model.description()))
        # A card that was edited, or copied from another run, must not describe this model.
        stated = card.model_dump()
        for name, value in described.items():
            if stated.get(name) != value:
                raise ModelError(
                    f"{self.card_file}: its {name} is not that of {MODEL} (copy the whole folder "
                    "again, or fit it again)"
                )
        if alpha_prime is None:
            return model
        try:
            return model.with_level(alpha_prime)
        except ConfigError as error:
            raise ConfigError(f"{self.folder}: {error}") from None

    def retention(self) -> FittedRetention | None:
        """What a like is worth for later; None: the fit had no record of responses."""
        return (
            FittedRetention.load(self.checked(RETENTION_FILE)) if self.has(RETENTION_FILE) else None
        )

    def data(self) -> DataSpec:
        """Which data the model was fitted on."""
        with understood(self.card_file):
            data = DataSpec.model_validate(self.card().data)
        return data.model_copy(update={"source": self._within(data.source)})

    @property
    def is_of_whole_log(self) -> bool:
        """Whether the model was fitted on the whole log, so that nothing is left to test on."""
        return self.data().cut == "none"

    def check_testable(self, remedy: str = "fit without --all") -> None:
        """Refuse a model that was fitted on the whole log: it has no test items."""
        if self.is_of_whole_log:
            raise ConfigError(
                f"{self.folder}: was fitted on the whole log: nothing is left to test on ({remedy})"
            )

    def check_whole(self) -> None:
        """Refuse a model that was fitted on the training part of its log only."""
        if not self.is_of_whole_log:
            raise ModelError(
                f"{self.folder}: was fitted on a part of its log, to be tested on the rest (fit it "
                "with --all, or by fh.fit)"
            )

    def limits(self) -> tuple[Limit, ...]:
        """The limits that were given to the fit."""
        try:
            return tuple(Limit.parse(text) for text in self.card().limits)
        except LimitError as error:
            raise ModelError(f"{self.card_file}: {error}") from None

    def item_table(self) -> str | None:
        """The path of the table with the columns that limits are about; None: there is none."""
        table = self.card().item_table
        return None if table is None else self._within(table)

    def with_its_ties(self, data: DataSpec) -> DataSpec:
        """The data with ties ordered as in this model, unless an order is given."""
        if data.ties != "auto" or not self.card_file.exists():
            return data
        return data.model_copy(update={"ties": self.data().ties})

    def _within(self, path: str) -> str:
        """The path of a file of this folder, if it has one of that name; else the path as it is."""
        file = self.folder / path
        return str(file.resolve()) if not Path(path).is_absolute() and file.is_file() else path

    def log(self, cache_dir: Path | None = None) -> Interactions:
        """The log that the model was fitted on: the stored one, else read from where it was."""
        about = self.card().log
        if about is None:
            return self.data().read(cache_dir)
        return log_of(pl.read_parquet(self.checked(LOG)), about)

    def items(self) -> ItemTable | None:
        """The table of items, if the model has one."""
        table = self.item_table()
        if table is None:
            return None
        if self.has(ITEMS):
            return load_items(self.checked(ITEMS))
        data = self.data()
        return load_items(table, item=data.item, encoding=data.encoding)

    def observed(self, log: Interactions) -> pl.DataFrame | None:
        """Rows that were observed after the fit, with the log's names of columns; None: none."""
        if not self.has(OBSERVED):
            return None
        frame = pl.read_parquet(self.checked(OBSERVED))
        names = names_of(log)
        own = {**names, "time": names["timestamp"]}
        return frame.rename({name: own[name] for name in frame.columns})


def log_frame(log: Interactions) -> pl.DataFrame:
    """The log as a frame, with ids: user, item and what it has of rating, time, weight, last_time.

    A log with weights gets a row for every row that was read, also for repeats. A user or an item
    without interactions has a row in which everything else is null.
    """
    rows = all_rows(log)
    columns: dict[str, Any] = {
        "user": _ids(log.user_ids[rows.users]),
        "item": _ids(log.item_ids[rows.items]),
    }
    optional = {
        "rating": None if log.ratings is None else log.ratings[rows.log_row],
        "time": rows.times,
        "weight": rows.weights,
        "last_time": log.last_times if log.weights is None else None,
    }
    columns |= {name: cells for name, cells in optional.items() if cells is not None}
    taken = pl.DataFrame(columns)
    idle = zip(("user", "item"), idle_ids(log) or (), strict=False)
    alone = [pl.DataFrame({name: ids}) for name, ids in idle if len(ids)]
    return pl.concat([taken, *alone], how="diagonal")


def log_of(frame: pl.DataFrame, about: LogInfo) -> Interactions:
    """The log that `log_frame` made the frame of."""
    idle = (
        frame.filter(pl.col("item").is_null())["user"],
        frame.filter(pl.col("user").is_null())["item"],
    )
    frame = frame.drop_nulls(["user", "item"])
    columns: dict[str, Any] = {name: frame[name].to_numpy() for name in frame.columns}
    log = from_arrays(
        frame["user"],
        frame["item"],
        ratings=columns.get("rating"),
        timestamps=columns.get("time"),
        weights=columns.get("weight"),
        name=about.name,
        repeats=about.repeats,
        labels=about.columns,
        idle=idle if any(map(len, idle)) else None,
    )
    # With weights all rows are there, and the last time of a pair follows from them.
    return log if log.weights is not None else replace(log, last_times=columns.get("last_time"))


def items_frame(table: ItemTable) -> pl.DataFrame:
    """The table of items as a frame, with a row per item."""
    return pl.DataFrame({"item": _ids(table.ids), **table.columns})


def observed_frame(parts: Sequence[ObservedRows]) -> pl.DataFrame:
    """All rows that were observed, as a frame."""
    rows = joined(list(parts))
    columns: dict[str, Any] = {"user": _ids(rows.users), "item": _ids(rows.items)}
    columns |= {} if rows.ratings is None else {"rating": rows.ratings}
    columns |= {} if rows.times is None else {"time": rows.times}
    columns |= {} if rows.weights is None else {"weight": rows.weights}
    return pl.DataFrame(columns)


def _ids(ids: Any) -> pl.Series:
    cells = np.asarray(ids, dtype=object).tolist()
    if all(isinstance(one, int) for one in cells):
        return pl.Series(cells, dtype=pl.Int64)
    return pl.Series([str(one) for one in cells], dtype=pl.String)
