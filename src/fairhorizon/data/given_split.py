"""A split that somebody else has made: a folder with a file each for training, validation and test.

The files are called train, validation (or valid, val, dev) and test, with any suffix that a log may
have, as `fairhorizon data split` writes them; or NAME.train.inter and so on, as RecBole does.
"""

from pathlib import Path
from typing import Unpack

import numpy as np
import polars as pl

from fairhorizon.data.frames import Rows, log_of_rows, role_columns
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.log_files import ReaderOptions, locate, part_files
from fairhorizon.data.splits import Split, Ties, with_ties
from fairhorizon.errors import DataError

TRAIN, VALIDATION, TEST = "train", "validation", "test"
NAMES = {TRAIN: (TRAIN,), VALIDATION: (VALIDATION, "valid", "val", "dev"), TEST: (TEST,)}
PACKED = (".gz", ".gzip", ".zip")


def split_files(folder: str | Path) -> dict[str, Path]:
    """The file of each part of a split, in the order training, validation, test."""
    folder = Path(folder)
    found: dict[str, Path] = {}
    if not folder.is_dir():
        remedy = "name the folder with the files train, validation and test"
        raise DataError("is no folder with a split", file=folder, remedy=remedy)
    of_part = {name: part for part, names in NAMES.items() for name in names}
    for file in part_files(folder):
        stem = Path(file.stem).stem if file.suffix.lower() in PACKED else file.stem
        part = of_part.get(stem.rpartition(".")[2].lower())
        if part is None:
            continue
        if part in found:
            remedy = "leave one of them"
            raise DataError(f"{found[part].name} is {part}, too", file=file, remedy=remedy)
        found[part] = file
    if missing := [part for part in NAMES if part not in found]:
        remedy = "give train, validation and test, as in train.csv"
        raise DataError(f"has no file {missing[0]}", file=folder, remedy=remedy)
    return {part: found[part] for part in NAMES}


def given_split(
    whole: Interactions, folder: str | Path, ties: Ties, **options: Unpack[ReaderOptions]
) -> Split:
    """The split as its files have it, with the ids and attributes of the whole log.

    A row of validation or test whose user and item an earlier part has too is left out, as repeats
    are in every log: no list has what its user took before.

    whole: the log of all files together.
    ties: the order of a user's training interactions at one time, as in `split`.
    options: those of `load`.
    """
    ids = [pl.Series(known.tolist()) for known in (whole.user_ids, whole.item_ids)]
    parts: dict[str, Interactions] = {}
    seen = np.zeros(0, dtype=np.int64)
    for part, file in split_files(folder).items():
        log = _part(whole, file, ids, options)
        pairs = log.users * log.n_items + log.items
        parts[part] = log.take(~np.isin(pairs, seen))
        seen = np.append(seen, pairs)
    return Split(with_ties(parts[TRAIN], ties), parts[VALIDATION], parts[TEST])


def _part(
    whole: Interactions, file: Path, ids: list[pl.Series], options: ReaderOptions
) -> Interactions:
    found = locate(file, {**options, "attributes": ()})
    columns = role_columns(found.frame, found.labels)
    rows = Rows.from_columns(columns, found.labels, found.origin)
    return log_of_rows(
        rows.among(*ids),
        whole.attributes,
        whole.further,
        name=whole.name,
        repeats=options.get("repeats", "first"),
        origin=found.origin,
        labels=found.labels,
    )
