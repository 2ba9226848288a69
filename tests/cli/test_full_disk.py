"""A disk without space for a file: one line that names the file, and nothing half-written."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.datasets import DataSpec
from fairhorizon.files import write_text, written_together
from fairhorizon.model.folder import ModelFolder

MARKET = "synthetic:users=60,items=80,interactions_per_user=20"
REMEDY = "File too large (check the path, your permissions and the free space)"


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file grow beyond this many bytes; Python ignores the signal and gets an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def disk_of(size: int, folder: Path) -> Iterator[str]:
    """A file system of this many bytes at the folder, and what it says when it is full.

    Where mounting is not allowed, no file can grow beyond the size instead.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    mounted = _done(mount)
    try:
        with nullcontext() if mounted else room_for(size):
            yield "No space left on device" if mounted else "File too large"
    finally:
        if mounted:
            assert _done(["umount", str(folder)])


def _done(command: list[str]) -> bool:
    try:
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fitted") / "a"
    assert run(["fit", "popularity", "--data", MARKET, "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize(
    ("size", "file"),
    [
        (8000, "model.safetensors"),  # scores of 80 x 80 items are 25 kB
        (0, "model.safetensors"),
    ],
)
def test_a_model_without_space(
    size: int, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "run"
    with room_for(size):
        code = run(["fit", "ease", "--data", MARKET, "--out", str(out)])
    assert code == 1
    assert capsys.readouterr().err.splitlines() == [f"error: {out / file}: {REMEDY}"]
    assert list(tmp_path.iterdir()) == []


def test_a_card_without_space_leaves_no_model(fitted: Path, tmp_path: Path) -> None:
    """The model of 1 kB has space, the card with a long path has not."""
    model, data = ModelFolder(fitted).recommender(), DataSpec(source=3000 * "x")
    with room_for(2000), pytest.raises(OSError, match=r"File too large.*run\.json"):
        ModelFolder(tmp_path).write(model, data)
    assert list(tmp_path.iterdir()) == []
    ModelFolder(tmp_path).write(model, data)
    assert files(tmp_path) == ["model.safetensors", "run.json"]


def test_a_report_without_space_for_its_page(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is above 300 kB, the figure and the JSON file are far below."""
    lists, out, copy = tmp_path / "lists.csv", tmp_path / "report", tmp_path / "copy.json"
    assert run(["recommend", str(fitted), "--out", str(lists)]) == 0
    audit = ["audit", str(lists), "--data", MARKET, "--out", str(out), "--json", str(copy)]
    capsys.readouterr()
    with room_for(300_000):
        assert run(audit) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {out / 'index.html'}: {REMEDY}"
    assert files(tmp_path) == ["lists.csv"]
    assert not out.exists()
    assert run(audit) == 0
    figures = [f"exposure.{suffix}" for suffix in ("pdf", "png", "svg")]
    assert files(out) == ["audit.json", *figures, "index.html"]


def test_an_earlier_report_stays_as_it_was(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")

    @written_together()
    def write() -> None:
        write_text(tmp_path / "a", "new")
        write_text(tmp_path / "b", 1000 * "x")

    with room_for(100), pytest.raises(OSError, match="File too large"):
        write()
    assert files(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_files_inside_two_blocks_belong_to_the_outer_one(tmp_path: Path) -> None:
    with written_together():
        with written_together():
            write_text(tmp_path / "a", "1")
        assert not (tmp_path / "a").exists()
        write_text(tmp_path / "b", "2")
    assert [(tmp_path / name).read_text() for name in "ab"] == ["1", "2"]
    assert files(tmp_path) == ["a", "b"]


def test_lists_without_space(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = tmp_path / "lists.csv"
    with room_for(100):
        assert run(["recommend", str(fitted), "--out", str(lists)]) == 1
    assert capsys.readouterr().err.startswith(f"error: {lists}: File too large ")
    assert list(tmp_path.iterdir()) == []


def test_a_model_on_a_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = tmp_path / "disk"
    with disk_of(16_384, disk) as full:  # the model has 25 kB
        assert run(["fit", "ease", "--data", MARKET, "--out", str(disk / "run")]) == 1
        message = capsys.readouterr().err.splitlines()
        assert message == [
            f"error: {disk / 'run' / 'model.safetensors'}: {full} (check the path, your "
            "permissions and the free space)"
        ]
        assert list(disk.iterdir()) == []
        # what is small enough has space again
        assert run(["fit", "popularity", "--data", MARKET, "--out", str(disk / "run")]) == 0
        assert files(disk) == ["run/model.safetensors", "run/run.json"]


def test_a_report_on_a_full_disk(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists, disk = tmp_path / "lists.csv", tmp_path / "disk"
    assert run(["recommend", str(fitted), "--out", str(lists)]) == 0
    with disk_of(65_536, disk) as full:
        copy = str(disk / "copy.json")
        audit = ["audit", str(lists), "--data", MARKET, "--out", str(disk / "a"), "--json", copy]
        capsys.readouterr()
        assert run(audit) == 1
        message = capsys.readouterr().err.splitlines()[-1]
        assert message.startswith(f"error: {disk / 'a'}")
        assert full in message
        assert list(disk.iterdir()) == []  # neither the page nor the JSON files


def test_the_disk_of_these_tests_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with disk_of(8_192, disk) as full, pytest.raises(OSError, match=full):
        (disk / "a").write_bytes(bytes(20_000))
