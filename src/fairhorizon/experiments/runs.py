"""A run folder: what was fitted on which data, its model, its checkpoint and its metrics."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from fairhorizon import __version__
from fairhorizon.agents.fcpo.learning.checkpoint import resume_training
from fairhorizon.agents.fcpo.learning.training import Training
from fairhorizon.agents.fcpo.model import Fcpo, default_device
from fairhorizon.agents.lird.model import Lird
from fairhorizon.agents.methods import SHARE_DIALS, Model, load_method
from fairhorizon.agents.ranked.model import Ranked
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.readers import read_item_attribute
from fairhorizon.data.sources import load
from fairhorizon.data.splits import Split, split, split_by_time
from fairhorizon.errors import ConfigError, DataError, ModelError
from fairhorizon.exposure.groups import attribute_group, popular_group
from fairhorizon.files import write_json
from fairhorizon.vocabulary import POPULAR


class DataSpec(BaseModel):
    """How to get the same data, split and groups again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str  # a named set or the path of a file
    user: str | int | None = None
    item: str | int | None = None
    rating: str | int | None = None
    timestamp: str | int | None = None
    header: bool | None = None
    separator: str | None = None
    cut: Literal["per-user", "time"] = "per-user"
    shuffle_ties: int | None = None
    item_table: str | None = None  # a file with a row per item; without it the log has the column
    group_column: str | None = None  # None: groups by popularity
    sensitive_values: tuple[str, ...] = ()

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

    def write(self, model: Model, data: DataSpec, status: str) -> None:
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

    def model(self, alpha_prime: float | None = None) -> Model:
        """The model as it was fitted, or serving at another level."""
        with understood(self.model_file):
            model = load_method(self.model_file)
        if alpha_prime is None:
            return model
        if isinstance(model, Fcpo):
            return model.at(alpha_prime)
        reranker = model.reranker if isinstance(model, Ranked) else None
        if isinstance(model, Lird) or reranker is None or reranker.method not in SHARE_DIALS:
            raise ConfigError(
                f"{self.folder}: {model.method} has no limit to set to {alpha_prime:g} "
                "(fit fcpo, which serves any)"
            )
        return model.reranked(reranker.at_level(alpha_prime))

    def resume(self, split: Split) -> Training:
        """The training that the checkpoint holds."""
        if not self.checkpoint_file.exists():
            raise ModelError(
                f"{self.checkpoint_file}: there is no checkpoint (leave out --resume to start anew)"
            )
        with understood(self.checkpoint_file):
            return resume_training(self.checkpoint_file, split, default_device())


@contextmanager
def understood(file: Path) -> Iterator[None]:
    """A whole file whose content is not what this version would have written is refused."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{file}: holds something unexpected: {error} (fit it again)") from error
