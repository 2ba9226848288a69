"""Files appear whole or not at all; pipes, devices and standard output are written to."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from fairhorizon.errors import ConfigError
from fairhorizon.files import (
    check_file,
    claimed,
    locked,
    write_atomically,
    write_json,
    write_text,
    written_together,
)

Pipe = tuple[Path, Callable[[], bytes]]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt("disk full")])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "f.json"
    write_json(path, {"x": 1})

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise error

    with pytest.raises(type(error), match="disk full"):
        write_atomically(path, fail)
    assert json.loads(path.read_text()) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["f.json"]


def test_json_is_strict(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "f.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_text_that_cannot_be_written_leaves_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    write_text(path, "as it was")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, 1000 * "and a half " + "\ud800")
    assert path.read_text() == "as it was"
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    """A named pipe, and a function that waits for all that its reader was sent."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor() as pool:
        reader = pool.submit(path.read_bytes)
        yield path, reader.result


def test_a_pipe_is_written_to_and_stays(tmp_path: Path, pipe: Pipe) -> None:
    path, read = pipe
    check_file(path)
    write_json(path, {"x": 1})
    assert json.loads(read()) == {"x": 1}
    assert path.is_fifo()
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_files_written_together_reach_a_pipe_only_if_all_are_there(
    tmp_path: Path, pipe: Pipe
) -> None:
    path, read = pipe

    @written_together()
    def write(second: str) -> None:
        write_text(path, "content")
        write_text(tmp_path / "b", second)

    with pytest.raises(UnicodeEncodeError):
        write("\ud800")
    write("b")
    assert read() == b"content"
    assert (tmp_path / "b").read_text() == "b"


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    for name in ("there", "not_there_yet"):
        link, file = tmp_path / f"to_{name}", tmp_path / "folder" / name
        link.symlink_to(file)
        if name == "there":
            write_text(file, "old")
        write_text(link, "new")
        assert link.readlink() == file
        assert file.read_text() == "new"
        assert not file.is_symlink()
        with pytest.raises(UnicodeEncodeError):
            write_text(link, "half\ud800")
        assert file.read_text() == "new"
    assert len(list((tmp_path / "folder").iterdir())) == 2


def test_a_device_that_takes_nothing_is_an_error_and_stays(tmp_path: Path) -> None:
    """A copy of /dev/full where one can be made."""
    full = tmp_path / "full"
    try:
        os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        full.open("wb").close()
    except PermissionError:
        full.unlink(missing_ok=True)
        full.symlink_to("/dev/full")
    before = full.stat()
    for path in (full, tmp_path / "link"):
        if path.name == "link":
            path.symlink_to(full)
        check_file(path)
        with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
            write_text(path, "content")
        assert (full.stat().st_mode, full.stat().st_rdev) == (before.st_mode, before.st_rdev)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full", "link"]


def test_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    link = tmp_path / "stdout"  # as /dev/stdout is one
    link.symlink_to("/proc/self/fd/1")
    with redirect_stdout(sys.stderr):  # what is printed may go elsewhere
        for path in (Path("-"), link):
            check_file(path)
            write_text(path, "content\n")
    assert capfd.readouterr().out == "content\ncontent\n"
    assert link.readlink() == Path("/proc/self/fd/1")
    assert not Path("-").exists()
    with pytest.raises(ConfigError, match="-: several files cannot go to standard output"):
        claimed(Path("-")).__enter__()


def test_a_file_that_standard_output_goes_to_is_not_cut_off(tmp_path: Path) -> None:
    """Lines before and after the file stay, where the shell has redirected standard output."""
    link, out = tmp_path / "stdout", tmp_path / "out"
    link.symlink_to("/proc/self/fd/1")
    program = (
        "from pathlib import Path; from fairhorizon.files import write_text; "
        f"print('before', flush=True); write_text(Path({str(link)!r}), 'content\\n'); "
        "print('after')"
    )
    with out.open("wb") as file:
        assert subprocess.run([sys.executable, "-c", program], stdout=file).returncode == 0
    assert out.read_text() == "before\ncontent\nafter\n"


def test_two_cannot_work_in_one_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ConfigError, match="another process is writing to it"):
        locked(tmp_path).__enter__()
    with locked(tmp_path):  # it is free again, and nothing was left in it
        assert list(tmp_path.iterdir()) == []


def test_a_new_file_can_be_for_its_owner_alone(tmp_path: Path) -> None:
    write_atomically(tmp_path / "f", lambda draft: draft.write_text("x"), mode=0o600)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600
