"""A run folder: what was fitted on which data, its model, its checkpoint and its metrics."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairhorizon import __version__
from fairhorizon.agents.base import Recommender
from fairhorizon.agents.methods import load_method
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.readers import read_item_attribute
from fairhorizon.data.sources import load
from fairhorizon.data.splits import Split, split, split_by_time
from fairhorizon.errors import ConfigError, DataError, ModelError
from fairhorizon.exposure.groups import attribute_group, popular_group
from fairhorizon.files import write_json
from fairhorizon.settings import Settings
from fairhorizon.storage import understood
from fairhorizon.vocabulary import POPULAR


class DataSpec(Settings):
    """How to get the same data, split and groups again."""

    source: str
    """Name of a data set, or path of a file."""
    user: str | int | None = None
    """Column of the user, by name or by position from 0; None: found by its name."""
    item: str | int | None = None
    """Column of the item, by name or by position from 0; None: found by its name."""
    rating: str | int | None = None
    """Column of the rating, by name or by position from 0; None: found by its name, if any."""
    timestamp: str | int | None = None
    """Column of the time, by name or by position from 0; None: found by its name, if any."""
    header: bool | None = None
    """Whether the first line is a header; None: detected."""
    separator: str | None = None
    """Text between two cells; None: detected."""
    cut: Literal["per-user", "time"] = "per-user"
    """How the log is split: the last items of every user, or everything after one time."""
    shuffle_ties: int | None = None
    """Seed that shuffles interactions of a user at the same time; None: the order of the file."""
    item_table: str | None = None
    """Path of a file with a row per item that has the group column; None: the log has it."""
    group_column: str | None = None
    """Column whose values are the groups of items; None: groups by popularity."""
    sensitive_values: tuple[str, ...] = ()
    """Values of the group column whose exposure is limited."""

    @property
    def group_name(self) -> str:
        """What the limited group is called: "popular", or as in "genre = Drama or War"."""
        if self.group_column is None:
            return POPULAR
        return f"{self.group_column} = {' or '.join(self.sensitive_values)}"

    def open(self, cache_dir: Path | None = None, popular_share: float = 0.2) -> "Dataset":
        """The log, its split, and the group by the attribute or else by popularity."""
        if bool(self.group_column) != bool(self.sensitive_values):
            raise ConfigError("a group column and its sensitive values go together (give both)")
        if self.item_table is not None and self.group_column is None:
            raise ConfigError(f"{self.item_table}: which column has the groups? (name it too)")
        in_log = self.group_column is not None and self.item_table is None
        log = load(
            self.source,
            cache_dir=cache_dir,
            user=self.user,
            item=self.item,
            rating=self.rating,
            timestamp=self.timestamp,
            header=self.header,
            separator=self.separator,
            attributes=(self.group_column,) if in_log and self.group_column else (),
        )
        if self.cut == "time":
            parts = split_by_time(log)
        else:
            parts = split(log, shuffle_ties=self.shuffle_ties)
        return Dataset(log, parts, self._sensitive(log, parts, popular_share), self.group_name)

    def _sensitive(self, log: Interactions, parts: Split, share: float) -> NDArray[np.bool_]:
        if self.group_column is None:
            return popular_group(parts.train.item_counts(), share)
        if self.item_table is not None:
            values = read_item_attribute(self.item_table, log, attribute=self.group_column)
        elif self.group_column in log.attributes:
            values = log.attributes[self.group_column]
        else:
            raise DataError(
                f"{self.source} has no column {self.group_column!r}",
                remedy="give an item table that has it",
            )
        return attribute_group(values, self.sensitive_values)


@dataclass(frozen=True)
class Dataset:
    log: Interactions
    split: Split
    sensitive: NDArray[np.bool_]  # (n_items,) G0
    group_name: str = POPULAR  # what G0 is called


@dataclass(frozen=True)
class Run:
    """The files of a run; `run.json` says what it is."""

    folder: Path

    @property
    def model_file(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def checkpoint_file(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def metrics_file(self) -> Path:
        return self.folder / "metrics.json"

    @property
    def card_file(self) -> Path:
        return self.folder / "run.json"

    def write(self, model: Recommender, data: DataSpec, status: str) -> None:
        """The model, then the card that makes the folder a run."""
        model.save(self.model_file)
        card = {
            "fairhorizon": __version__,
            "status": status,
            "data": data.model_dump(mode="json"),
            **model.description(),
        }
        write_json(self.card_file, card)

    def card(self) -> dict[str, Any]:
        try:
            card = json.loads(self.card_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            remedy = (
                "go on with --resume"
                if self.checkpoint_file.exists()
                else "fairhorizon fit makes one"
            )
            raise ModelError(
                f"{self.folder}: no run here, run.json is missing ({remedy})"
            ) from None
        except (OSError, ValueError) as error:
            raise ModelError(f"{self.card_file}: cannot be read: {error} (fit it again)") from error
        if not isinstance(card, dict) or "data" not in card:
            raise ModelError(f"{self.card_file}: not the card of a run (fit it again)")
        return card

    def data(self) -> DataSpec:
        with understood(self.card_file):
            return DataSpec.model_validate(self.card()["data"])

    def model(self, alpha_prime: float | None = None) -> Recommender:
        """The model as it was fitted, or serving at another level."""
        with understood(self.model_file):
            model = load_method(self.model_file)
        if alpha_prime is None:
            return model
        try:
            return model.at(alpha_prime)
        except ConfigError as error:
            raise ConfigError(f"{self.folder}: {error}") from None
