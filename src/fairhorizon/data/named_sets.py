"""MovieLens by name: logs and tables of items, downloaded once and verified by checksum."""

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.tables import read_table
from fairhorizon.errors import DataError, NoColumnError
from fairhorizon.files import write_atomically

# ---- Downloads: from the official archive, else from a package on PyPI that contains the data ----
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
    """The path of the file in the cache, downloaded if need be, with its checksum verified."""
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
        # URLError and time-outs are OSErrors.
        raise FetchError(str(error)) from None
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
                # If pip is interrupted, its temporary files go with the folder.
                env=os.environ | {"TMPDIR": folder},
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
    """The content of the one file of an archive whose path ends in `member`; zip or tar."""
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


# ---- The tables of items of named sets: title, year and genre of every film ----------------------
COLUMNS = ("title", "year", "genre")  # beside the item
NO_FILM = "unkonwn"  # title and year, in RecBole's spelling, of the one record without a film
TITLE_AND_YEAR = r"^(.*?) ?\((\d{4})\)$"  # as in "Toy Story (1995)"
TABLES = {
    "ml-100k": NamedSet(
        name="ml-100k",
        file="ml-100k.item",
        sha256="51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
        package="recbole==1.2.1",
        pip_options=("--only-binary", "recbole"),
        package_member="recbole/dataset_example/ml-100k/ml-100k.item",
    ),
    "ml-1m": NamedSet(
        name="ml-1m",
        file="movies.dat",
        sha256="0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
        url="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
        member="ml-1m/movies.dat",
        package="scikit-rec==0.3.0",
        pip_options=("--no-binary", "scikit-rec"),
        package_member="examples/data/movielens-1m/movies.dat",
    ),
}


def named_items(name: str, cache: Path) -> pl.DataFrame:
    """The table of items of a named set, with `COLUMNS` as text, downloaded once."""
    return READERS[name](fetch(TABLES[name], cache))


def read_recbole_items(path: Path) -> pl.DataFrame:
    """RecBole's ml-100k.item: item_id, movie_title, release_year, class; blanks between genres."""
    frame = read_table(path).frame
    title, year = (
        pl.col(column).replace(NO_FILM, "") for column in ("movie_title", "release_year")
    )
    genre = pl.col("class").str.replace_all(" ", "|", literal=True)
    item = pl.col("item_id")
    return frame.select(item.alias("item"), title.alias("title"), year.alias("year"), genre=genre)


def read_movielens_items(path: Path) -> pl.DataFrame:
    """MovieLens' movies.dat: item::title (year)::genres with bars between them, in latin-1."""
    frame = read_table(path, header=False, separator="::", encoding="latin-1").frame
    titled = pl.col("1").str.extract_groups(TITLE_AND_YEAR)
    title, year = titled.struct[0].fill_null(pl.col("1")), titled.struct[1].fill_null("")
    item = pl.col("0")
    return frame.select(item.alias("item"), title.alias("title"), year.alias("year"), genre="2")


READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    "ml-100k": read_recbole_items,
    "ml-1m": read_movielens_items,
}


@dataclass(frozen=True, eq=False)
class NamedColumns(Mapping[str, NDArray[Any]]):
    """The columns of a named set's table, which is downloaded when one of them is asked for."""

    name: str
    cache: Path
    log: Interactions

    def __getitem__(self, column: str) -> NDArray[Any]:
        if column not in COLUMNS:
            raise KeyError(column)
        return attributes_of(self.name, self.cache, self.log, [column])[column]

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMNS)

    def __len__(self) -> int:
        return len(COLUMNS)


def attributes_of(
    name: str, cache: Path, log: Interactions, wanted: Iterable[str | int]
) -> dict[str, NDArray[Any]]:
    """Columns of a named set's table by item of its log, (n_items,) each."""
    wanted = tuple(wanted)
    for column in wanted:
        if column not in COLUMNS:
            remedy = f"the items of {name} have {', '.join(COLUMNS)}"
            raise NoColumnError(column, COLUMNS, file=None, remedy=remedy)
    if not wanted:
        return {}
    frame = named_items(name, cache)
    row_of = {item: row for row, item in enumerate(frame["item"].to_list())}
    rows = [row_of.get(str(item)) for item in log.item_ids.tolist()]
    return {
        str(column): np.array(
            ["" if row is None else frame[str(column)][row] for row in rows], dtype=object
        )
        for column in wanted
    }


MOVIELENS = "https://files.grouplens.org/datasets/movielens"
NAMED = {
    "ml-100k": NamedSet(
        name="ml-100k",
        file="u.data",
        sha256="06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
        url=f"{MOVIELENS}/ml-100k.zip",
        member="ml-100k/u.data",
        package="recbole==1.2.1",
        pip_options=("--only-binary", "recbole"),
        package_member="recbole/dataset_example/ml-100k/ml-100k.inter",
        package_header=True,
    ),
    "ml-1m": NamedSet(
        name="ml-1m",
        file="ratings.dat",
        sha256="506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
        url=f"{MOVIELENS}/ml-1m.zip",
        member="ml-1m/ratings.dat",
        package="scikit-rec==0.3.0",
        pip_options=("--no-binary", "scikit-rec"),
        package_member="examples/data/movielens-1m/ratings.dat",
    ),
}


def cache_folder(cache_dir: str | Path | None = None) -> Path:
    """`cache_dir`, else FAIRHORIZON_CACHE, else fairhorizon in XDG_CACHE_HOME, else in ~/.cache."""
    chosen = cache_dir or os.environ.get("FAIRHORIZON_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fairhorizon"


def items_of(source: str, *, cache_dir: str | Path | None = None) -> pl.DataFrame:
    """The table of items of a named set: item, title, year and genre, as text.

    A film of several genres has them in one cell, with bars between them. A limit on `genre=Drama`
    counts it, and so does one on each of its other genres.

    source: the name of the set, ml-100k or ml-1m.
    cache_dir: where named sets are kept, as for `load`.
    """
    if source not in NAMED:
        raise DataError(f"{source!r} brings no table of items", remedy=f"{' and '.join(NAMED)} do")
    return named_items(source, cache_folder(cache_dir))
