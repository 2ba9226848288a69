"""A run folder: what was fitted on which data, its model, its checkpoint and its metrics."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairhorizon import __version__
from fairhorizon.datasets import DataSpec
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.fcpo.retention.replay import RETENTION_FILE, FittedRetention
from fairhorizon.files import write_json, written_together
from fairhorizon.methods import load_method
from fairhorizon.recommenders.base import Recommender
from fairhorizon.settings import faults
from fairhorizon.storage import understood


class Card(BaseModel):
    """What every card has; each method adds what describes it."""

    model_config = ConfigDict(extra="allow", strict=True)

    fairhorizon: str
    status: Literal["finished", "interrupted"]
    method: str
    seed: int = Field(ge=0)
    data: dict[str, Any]
    limits: list[str]
    item_table: str | None


@dataclass(frozen=True)
class StoredLimits:
    """The limits of a fit as they were written, and the table with the columns of their groups."""

    limits: tuple[str, ...] = ()
    item_table: str | None = None


@dataclass(frozen=True)
class Run:
    """The files of a run; `run.json` says what it is."""

    folder: Path

    @property
    def model_file(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def outlook_file(self) -> Path:
        return self.folder / RETENTION_FILE

    @property
    def checkpoint_file(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def metrics_file(self) -> Path:
        return self.folder / "metrics.json"

    @property
    def card_file(self) -> Path:
        return self.folder / "run.json"

    def write(
        self,
        model: Recommender,
        data: DataSpec,
        status: str,
        limits: StoredLimits = StoredLimits(),  # noqa: B008  # it is frozen
        outlook: FittedRetention | None = None,
    ) -> None:
        """The model, what it learned from answers, and the card that makes the folder a run."""
        card = {
            "fairhorizon": __version__,
            "status": status,
            "data": data.model_dump(mode="json"),
            "limits": list(limits.limits),
            "item_table": limits.item_table,
            **model.description(),
        }
        with written_together():
            model.save(self.model_file)
            if outlook is not None:
                outlook.save(self.outlook_file)
            write_json(self.card_file, card)

    def outlook(self) -> FittedRetention:
        """What was learned from answers."""
        if not self.outlook_file.exists():
            raise ModelError(
                f"{self.folder}: has learned from no answers what a like is worth (fit it with "
                "--answers FILE, or leave out --value long)"
            )
        return FittedRetention.load(self.outlook_file)

    def card(self) -> dict[str, Any]:
        try:
            card = json.loads(self.card_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            remedy = (
                "continue with --resume"
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
        try:
            Card.model_validate(card)
        except ValidationError as error:
            raise ModelError(
                f"{self.card_file}: not the card of a run: {faults(error)} (fit it again)"
            ) from None
        return card

    def data(self) -> DataSpec:
        with understood(self.card_file):
            data = DataSpec.model_validate(self.card()["data"])
        return data.model_copy(update={"source": self._within(data.source)})

    def _within(self, path: str) -> str:
        """A file of the run folder, where the path is one; else the path as it is."""
        file = self.folder / path
        return str(file.resolve()) if not Path(path).is_absolute() and file.is_file() else path

    @property
    def is_of_whole_log(self) -> bool:
        """Whether it was fitted on everything, so that nothing is left to test on."""
        return self.data().cut == "none"

    def check_testable(self, remedy: str = "fit without --all") -> None:
        """Refuse a run without test items."""
        if self.is_of_whole_log:
            raise ConfigError(
                f"{self.folder}: was fitted on the whole log: nothing is left to test on ({remedy})"
            )

    def limits(self) -> StoredLimits:
        """Those that were given to the fit."""
        card = self.card()
        table = card["item_table"]
        return StoredLimits(tuple(card["limits"]), None if table is None else self._within(table))

    def with_its_ties(self, data: DataSpec) -> DataSpec:
        """The data with ties in the order of this run, unless an order is given."""
        if data.ties != "auto" or not self.card_file.exists():
            return data
        return data.model_copy(update={"ties": self.data().ties})

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
