"""Files are written whole or not at all; devices, pipes and standard output are written to."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from fairhorizon.errors import ConfigError

STANDARD_OUTPUT = Path("-")
STDOUT = 1  # its descriptor, whatever `sys.stdout` has been redirected to
READABLE = 0o644  # mode of a new file
# drafts and where they will go, while files are written together
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
    drafts: list[tuple[Path, Path]] = []
    token = _waiting.set(drafts)
    try:
        yield drafts
        for draft, path in drafts:
            with _naming(path):
                _deliver(draft, path)
    finally:
        _waiting.reset(token)
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)


def write_atomically(path: Path, write: Callable[[Path], object], *, mode: int = READABLE) -> None:
    """Let `write` fill a draft, then rename it to `path`.

    A link stays, and the file it leads to is replaced. What is no regular file, such as a pipe or
    a device, stays too and is sent the content of the draft; so is standard output, `-`.
    """
    if is_stream(path):
        handle, name = tempfile.mkstemp()
    else:
        file = _linked(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    os.close(handle)
    draft, waiting = Path(name), _waiting.get()
    try:
        with _naming(path):
            write(draft)
            draft.chmod(mode)
            if waiting is None:
                _deliver(draft, path)
            else:
                waiting.append((draft, path))
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _deliver(draft: Path, path: Path) -> None:
    if not is_stream(path):
        draft.replace(_linked(path))
        return
    # /dev/stdout is not opened again: a file that the shell has redirected it to would be cut off
    with draft.open("rb") as content, _opened_stream(path) as stream:
        shutil.copyfileobj(content, stream)
    draft.unlink()


def _linked(path: Path) -> Path:
    """The file that a link leads to, which need not be there yet."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _opened_stream(path: Path) -> BinaryIO:
    return os.fdopen(os.dup(STDOUT), "wb") if is_stdout(path) else path.open("wb")


def is_stdout(path: Path) -> bool:
    """Whether it is `-`, or a name of what standard output is, such as /dev/stdout."""
    if path == STANDARD_OUTPUT:
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(STDOUT))
    except OSError:
        return False


def is_stream(path: Path) -> bool:
    """Whether it is written to and not replaced: a pipe, a device or standard output."""
    if is_stdout(path):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """An OSError names the file meant: that of a full disk names none."""
    try:
        yield
    except OSError as error:
        name = "standard output" if path == STANDARD_OUTPUT else str(path)
        raise OSError(error.errno, error.strerror or str(error), name) from error


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: object) -> None:
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_copies(content: object, *paths: Path | None) -> None:
    """Write the same JSON to several paths; None is skipped."""
    for path in paths:
        if path is not None:
            write_json(path, content)


# ---- before the work whose result is written


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Create the folder first, so that a bad path fails at once; remove it if it stays empty."""
    if folder == STANDARD_OUTPUT:
        raise ConfigError("-: several files cannot go to standard output (name a folder)")
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _try_to_write(folder)
        yield
    finally:
        for path in made:
            with suppress(OSError):  # a folder with something in it stays
                path.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuse a folder that another process works in; the lock ends with the process."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: another process is writing to it (wait for it, or name another folder)"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def check_file(file: Path | None) -> None:
    """Fail at once if the file, which is written after the work, could not be written."""
    if file is None or is_stream(file):
        return
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    with claimed(_linked(file).parent):
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
