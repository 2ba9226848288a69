"""A file with what another program has made, and a checksum by which a change is noticed."""

from pathlib import Path
from typing import Self

from fairhorizon.errors import ConfigError, DataError
from fairhorizon.files import sha256
from fairhorizon.settings import Settings


class GivenFile(Settings):
    """Which file it is."""

    file: str = ""
    """Path of the file."""
    sha256: str = ""
    """Its checksum, under which results are kept; empty: not checked."""

    @classmethod
    def from_path(cls, path: str | Path) -> Self:
        """The file as it is now."""
        return cls(file=str(Path(path).resolve()), sha256=_checksum(Path(path)))

    def path(self, method: str) -> Path:
        """Where it is; an error if none was given or if it has changed.

        method: that reads the file, as an error calls it.
        """
        if not self.file:
            raise ConfigError(f"{method}: from which file? (give --{method} NAME=FILE)")
        path = Path(self.file)
        if self.sha256 and _checksum(path) != self.sha256:
            raise DataError("has changed since it was named", file=path, remedy="start again")
        return path


def _checksum(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        remedy = "give the path of a file"
        raise DataError(f"cannot be read: {error.strerror}", file=path, remedy=remedy) from None
