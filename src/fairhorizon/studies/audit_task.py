"""An audit as a task of an engine: a worker reads data and lists by their paths."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.recommendations import ListColumns, Recommendations, read_recommendations
from fairhorizon.datasets import DataPlace
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.studies.audit import audit
from fairhorizon.studies.audit_rows import AuditResult
from fairhorizon.studies.shown_by import ItemNotes


@dataclass(frozen=True)
class ListFile:
    """A file of lists or impressions, and how it is read."""

    path: Path
    columns: ListColumns
    header: bool | None
    separator: str | None
    encoding: str
    ignore_unknown: bool

    def read(self, log: Interactions) -> Recommendations:
        """The showings, with the ids of the log."""
        return read_recommendations(
            self.path,
            log,
            self.columns,
            header=self.header,
            separator=self.separator,
            encoding=self.encoding,
            ignore_unknown=self.ignore_unknown,
        )


@dataclass(frozen=True)
class AuditTask:
    """Everything that `audit` is told."""

    place: DataPlace
    lists: ListFile
    limits: tuple[ResolvedLimit, ...]
    ks: tuple[int, ...]
    alpha_prime: float
    name: str
    notes: ItemNotes

    def prepare(self) -> None:
        self.place.dataset()

    def rows(self) -> Iterator[AuditResult]:
        """The one result."""
        dataset = self.place.dataset()
        shown = self.lists.read(dataset.log)
        yield audit(
            dataset,
            shown,
            self.limits,
            ks=self.ks,
            alpha_prime=self.alpha_prime,
            name=self.name,
            notes=self.notes,
        )
