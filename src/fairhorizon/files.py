"""Files are written whole or not at all."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

# temporary files and what they will be called, while files are written together
_waiting: ContextVar[list[tuple[Path, Path]] | None] = ContextVar("waiting", default=None)


@contextmanager
def written_together() -> Iterator[list[tuple[Path, Path]]]:
    """Files written inside get their names at the end, and none of them if one fails.

    Within another such block they belong to that one. Gives the files written so far: where each
    is until then, and what it will be called.
    """
    if (outer := _waiting.get()) is not None:
        yield outer
        return
    files: list[tuple[Path, Path]] = []
    token = _waiting.set(files)
    try:
        yield files
        for temporary, path in files:
            with _naming(path):
                temporary.replace(path)
    finally:
        _waiting.reset(token)
        for temporary, _ in files:
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(handle)
    temporary, waiting = Path(name), _waiting.get()
    try:
        with _naming(path):
            write(temporary)
            temporary.chmod(0o644)
            if waiting is None:
                temporary.replace(path)
            else:
                waiting.append((temporary, path))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """An OSError names the file meant: that of a full disk names none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: object) -> None:
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_copies(content: object, *paths: Path | None) -> None:
    """Write the same JSON to several paths; None is skipped."""
    for path in paths:
        if path is not None:
            write_json(path, content)
