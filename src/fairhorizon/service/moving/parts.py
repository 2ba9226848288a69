"""A Parquet file that is written block by block: never more than a block of it is in memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from fairhorizon.files import write_atomically


class ParquetParts:
    """Blocks of rows as small files in a folder, and in the end all of them as one file."""

    def __init__(self, folder: Path, schema: dict[str, Any]) -> None:
        folder.mkdir()
        self.folder, self.schema = folder, schema
        self.rows = 0
        self._files: list[Path] = []

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Some rows; their cells are in the order of the schema."""
        if rows or not self._files:
            file = self.folder / f"{len(self._files)}.parquet"
            pl.DataFrame(rows, schema=self.schema, orient="row").write_parquet(file)
            self._files.append(file)
            self.rows += len(rows)

    def write(self, path: Path) -> None:
        """All rows in the order in which they came, streamed from one file to the other."""
        if not self._files:
            self.add([])
        write_atomically(path, lambda draft: pl.scan_parquet(self._files).sink_parquet(draft))
