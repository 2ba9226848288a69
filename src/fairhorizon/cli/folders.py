"""Folders that a command writes to."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder, made before the work so that a bad place is told at once; gone if left empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass  # it can be written to
        yield
    finally:
        for path in made:
            with suppress(OSError):  # a folder with something in it stays
                path.rmdir()


def is_used(folder: Path) -> bool:
    """Whether there is anything at this place but an empty folder."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
