"""Folders that a command writes to."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Create the folder first, so that a bad path fails at once; remove it if it stays empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _try_to_write(folder)
        yield
    finally:
        for path in made:
            with suppress(OSError):  # a folder with something in it stays
                path.rmdir()


def check_file(file: Path | None) -> None:
    """Fail at once if the file, which is written after the work, could not be written."""
    if file is None:
        return
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    with claimed(file.parent):
        pass


def _try_to_write(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:  # its message names the temporary file
        raise OSError(error.errno, error.strerror, str(folder)) from None


def is_used(folder: Path) -> bool:
    """Whether the path exists and is not an empty folder."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
