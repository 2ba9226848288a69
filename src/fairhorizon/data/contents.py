"""The content of a file: its bytes, unpacked from gzip or zip, and its text in any encoding."""

import codecs
import gzip
import io
import zipfile
import zlib
from pathlib import Path

from fairhorizon.errors import DataError

GZIP, ZIP = b"\x1f\x8b", (b"PK\x03\x04", b"PK\x05\x06")  # the second is a zip without files
UTF_8 = "utf-8"
# UTF-32 first: its mark begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
MANY = 5  # of the files in an archive, those that a message lists


def read_content(path: Path) -> tuple[bytes, str]:
    """The bytes of a file and its suffix in lower case, those of the file inside an archive.

    gzip and zip are recognised by content; a zip must hold exactly one file.
    """
    if path.is_dir():
        raise DataError("is a folder, not a file", file=path, remedy="give a file inside it")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError("there is no such file", file=path, remedy="check the path") from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot be read: {error}", file=path, remedy="check the path and your permissions"
        ) from None
    try:
        if raw.startswith(GZIP):
            inner = path.stem if path.suffix.lower() in (".gz", ".gzip") else path.name
            return gzip.decompress(raw), Path(inner).suffix.lower()
        if raw.startswith(ZIP):
            return _only_member(raw, path)
    except (EOFError, OSError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(
            f"cannot be unpacked: {error}", file=path, remedy="pack it again, or give it unpacked"
        ) from None
    return raw, path.suffix.lower()


def _only_member(raw: bytes, path: Path) -> tuple[bytes, str]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        names = [
            entry.filename
            for entry in archive.infolist()
            if not entry.is_dir() and not entry.filename.startswith("__MACOSX/")
        ]
        if len(names) != 1:
            listed = ", ".join(names[:MANY]) + (", ..." if len(names) > MANY else "")
            raise DataError(
                f"holds {len(names)} files" + (f": {listed}" if names else ""),
                file=path,
                remedy="unpack it and give one of them" if names else "give a zip with one file",
            )
        return archive.read(names[0]), Path(names[0]).suffix.lower()


def decode(raw: bytes, path: Path, encoding: str, option: str) -> str:
    """The text of the bytes; a byte order mark counts for more than the encoding.

    An error names the line of the first invalid byte, and `option`, which sets the encoding.
    """
    marked = next((name for mark, name in MARKS if raw.startswith(mark)), encoding)
    try:
        "".encode(encoding)
        text = raw.decode(marked)
    except LookupError:
        raise DataError(
            f"unknown encoding {encoding!r}", file=path, remedy=f"try {option} latin-1"
        ) from None
    except UnicodeError as error:
        where = error.start if isinstance(error, UnicodeDecodeError) else 0
        raise DataError(
            f"is not {marked.removesuffix('-sig')} text",
            file=path,
            line=raw[:where].decode(marked, "replace").count("\n") + 1,
            remedy="a binary file cannot be read; if it is text, name its encoding, "
            f"e.g. {option} latin-1",
        ) from None
    if "\0" in text:
        raise DataError(
            "contains zero bytes, so it is a binary file",
            file=path,
            line=text.count("\n", 0, text.index("\0")) + 1,
            remedy="give CSV, TSV, .inter, u.data, ratings.dat or .parquet; if it is UTF-16 text, "
            f"give {option} utf-16",
        )
    return text
