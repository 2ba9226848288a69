"""A run folder of a model of the whole log: the model, its log and its items."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fairhorizon import __version__
from fairhorizon.data.frames import from_arrays, idle_ids
from fairhorizon.data.interactions import Interactions, all_rows
from fairhorizon.data.items import ItemTable
from fairhorizon.data.loading import load, load_items
from fairhorizon.data.locations import AREA_KM
from fairhorizon.data.splits import Ties
from fairhorizon.errors import ModelError
from fairhorizon.fcpo.retention.replay import RETENTION_FILE, FittedRetention
from fairhorizon.files import write_atomically, write_json, written_together
from fairhorizon.limits.language import Limit
from fairhorizon.methods import load_method
from fairhorizon.model.observe import ObservedRows, joined, names_of
from fairhorizon.recommenders.base import Recommender
from fairhorizon.storage import understood

MODEL, CARD, LOG, ITEMS = "model.safetensors", "run.json", "log.parquet", "items.parquet"
OBSERVED = "observed.parquet"
UNCUT = "none"  # how the data of such a run is split: not at all
READING = (  # of a source
    *("user", "item", "rating", "weight", "session"),
    *("header", "separator", "encoding"),
)


@dataclass(frozen=True)
class StoredModel:
    """What a file keeps of a model, beside its log and its items."""

    recommender: Recommender
    method: str  # as it was asked for
    limits: tuple[Limit, ...]
    ties: Ties
    area_km: float = AREA_KM
    outlook: FittedRetention | None = None  # None: no record of answers was given


def write_model(
    folder: Path,
    stored: StoredModel,
    log: Interactions,
    table: ItemTable | None,
    observed: Sequence[ObservedRows],
) -> None:
    """All files, or none of them."""
    data = {
        "source": LOG,
        "user": "user",
        "item": "item",
        "rating": None if log.ratings is None else "rating",
        "timestamp": None if log.timestamps is None else "time",
        "weight": None if log.weights is None else "weight",
        "area_km": stored.area_km,
        "cut": UNCUT,
        "ties": stored.ties,
    }
    card = {
        "fairhorizon": __version__,
        "status": "finished",
        "data": data,
        **stored.recommender.description(),
        "limits": [str(limit) for limit in stored.limits],
        "item_table": None if table is None else ITEMS,
        "asked": stored.method,
        "log": {"name": log.name, "columns": dict(log.columns), "repeats": log.repeats},
    }
    if folder.exists() and any(folder.iterdir()) and not (folder / LOG).exists():
        raise ModelError(f"{folder}: holds something else (name a new folder)")
    with written_together():
        stored.recommender.save(folder / MODEL)
        _write(folder / LOG, _frame_of_log(log))
        if table is not None:
            _write(folder / ITEMS, pl.DataFrame({"item": _ids(table.ids), **table.columns}))
        if observed or (folder / OBSERVED).exists():
            rows = joined(list(observed)) if observed else ObservedRows([], [], None, None)
            _write(folder / OBSERVED, _frame_of_rows(rows))
        if stored.outlook is not None:
            stored.outlook.save(folder / RETENTION_FILE)
        write_json(folder / CARD, card)
    if stored.outlook is None:
        (folder / RETENTION_FILE).unlink(missing_ok=True)  # of the model that was here before


def read_model(folder: Path) -> tuple[StoredModel, Interactions, ItemTable | None]:
    """The model of a folder that `Model.save` or `fairhorizon fit --all` has written."""
    file = folder / CARD
    try:
        card = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: no model here: {error} (fh.fit, then save)") from None
    with understood(file):
        data = card["data"]
        if data["cut"] != UNCUT:
            raise ModelError(
                f"{folder}: was fitted on a part of its log, to be tested on the rest (fit it with "
                "--all, or by fh.fit)"
            )
        limits = tuple(Limit.parse(text) for text in card["limits"])
        log = _read_log(folder, card)
        table = None
        if card["item_table"] is not None:
            table = load_items(folder / card["item_table"])
        recommender = load_method(folder / MODEL)
        asked = card.get("asked", card["method"])
        area_km = data["area_km"]
    outlook = read_outlook(folder)
    stored = StoredModel(recommender, asked, limits, data["ties"], area_km, outlook)
    return stored, log, table


def read_outlook(folder: Path) -> FittedRetention | None:
    """What was learned from a record of answers; None: there was none."""
    file = folder / RETENTION_FILE
    return FittedRetention.load(file) if file.exists() else None


def read_observed(folder: Path, log: Interactions) -> pl.DataFrame | None:
    """Rows that were observed after the fit, under the names of the columns of the log."""
    if not (folder / OBSERVED).exists():
        return None
    frame = pl.read_parquet(folder / OBSERVED)
    if frame.is_empty():
        return None
    names = names_of(log)
    own = {**names, "time": names["timestamp"]}
    return frame.rename({name: own[name] for name in frame.columns})


def _read_log(folder: Path, card: dict[str, Any]) -> Interactions:
    data, about = card["data"], card.get("log", {})
    if data["source"] != LOG:  # of `fairhorizon fit --all`, which keeps no copy
        given = {name: data[name] for name in READING if data.get(name) is not None}
        return load(data["source"], time=data.get("timestamp"), **given)
    if not (folder / LOG).is_file():
        raise ModelError(f"{folder / LOG}: its log is missing (copy the whole folder, or fit anew)")
    frame = pl.read_parquet(folder / LOG)
    idle = (
        frame["user"].filter(frame["item"].is_null()),
        frame["item"].filter(frame["user"].is_null()),
    )
    frame = frame.drop_nulls(["user", "item"])
    columns: dict[str, Any] = {name: frame[name].to_numpy() for name in frame.columns}
    log = from_arrays(
        frame["user"],
        frame["item"],
        ratings=columns.get("rating"),
        timestamps=columns.get("time"),
        weights=columns.get("weight"),
        name=about.get("name", ""),
        repeats=about.get("repeats", "first"),
        labels=about.get("columns", {}),
        idle=idle if any(map(len, idle)) else None,
    )
    return log if log.weights is not None else replace(log, last_times=columns.get("last_time"))


def _frame_of_log(log: Interactions) -> pl.DataFrame:
    """A row per row of the log; of a log with weights also those that repeat others.

    A user or an item without any has a row alone, with nothing else in it.
    """
    rows = all_rows(log)
    columns: dict[str, Any] = {
        "user": _ids(log.user_ids[rows.users]),
        "item": _ids(log.item_ids[rows.items]),
    }
    optional = {
        "rating": None if log.ratings is None else log.ratings[rows.like],
        "time": rows.times,
        "weight": rows.weights,
        "last_time": log.last_times if log.weights is None else None,
    }
    columns |= {name: cells for name, cells in optional.items() if cells is not None}
    taken = pl.DataFrame(columns)
    idle = zip(("user", "item"), idle_ids(log) or (), strict=False)
    alone = [pl.DataFrame({name: ids}) for name, ids in idle if len(ids)]
    return pl.concat([taken, *alone], how="diagonal")


def _frame_of_rows(rows: ObservedRows) -> pl.DataFrame:
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


def _write(path: Path, frame: pl.DataFrame) -> None:
    write_atomically(path, lambda temporary: frame.write_parquet(temporary))
