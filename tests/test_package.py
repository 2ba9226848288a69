"""The wheel and the sdist work without the checkout, in an environment of their own."""

import os
import subprocess
import sysconfig
import tarfile
import time
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from local_postgres import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
MARKET = "--data=synthetic:users=60,items=50,interactions_per_user=12"
FROM_PYTHON = """
import pandas as pd
import fairhorizon as fh

assert "site-packages" in fh.__file__, fh.__file__
rows = [(f"u{n % 40}", f"sku{n * 7 % 30}", n) for n in range(600)]
df = pd.DataFrame(rows, columns=["customer", "sku", "ts"])
skus = [f"sku{n}" for n in range(30)]
items_df = pd.DataFrame({"sku": skus, "seller_size": ["small", "big"] * 15})
log = fh.load(df, user="customer", item="sku", time="ts")
limits = ["popular<=0.4", "seller_size=small>=0.3"]
model = fh.fit(log, "ease+lists", limits=limits, items=items_df)
lists = model.recommend(["u17", "u4"], k=5).to_pandas()
assert list(lists.columns) == ["user", "rank", "item", "score", "value"]
assert len(lists) == 10
"""


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """An environment with the wheel, the wheel, and the sdist that it was made from.

    What the package depends on is that of the present environment, behind the wheel on the path.
    """
    folder = tmp_path_factory.mktemp("package")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"

    def call(*words: object, where: Path = folder) -> None:
        subprocess.run([python, "-m", *map(str, words)], cwd=where, env=plain(), check=True)

    call("pip", "install", "--quiet", "hatchling")
    call("hatchling", "build", "-t", "sdist", "-d", folder, where=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    call("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, sdist)
    (wheel,) = folder.glob("*.whl")
    call("pip", "install", "--quiet", "--no-deps", wheel)
    (packages,) = folder.glob("env/lib/python*/site-packages")
    (packages / "present.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder / "env", wheel, sdist


def plain() -> dict[str, str]:
    """The variables of a shell that knows of no checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_every_file_of_the_package_is_in_both(distributions: tuple[Path, Path, Path]) -> None:
    _, wheel, sdist = distributions
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "fairhorizon").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {"fairhorizon/py.typed", "fairhorizon/__init__.pyi"} <= sources
    assert sources <= set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{source}" for source in sources} <= names
    assert {"LICENSE", "README.md", "constraints.txt"} <= names


def test_it_works_outside_of_the_checkout(
    distributions: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    programs = distributions[0] / "bin"

    def call(program: str, *words: str) -> str:
        done = subprocess.run(
            [programs / program, *words],
            **{"cwd": tmp_path, "env": plain(), "timeout": 600},
            **{"capture_output": True, "text": True, "check": False},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    place = "import fairhorizon; print(fairhorizon.__file__)"
    assert Path(call("python", "-c", place)).is_relative_to(distributions[0])
    assert "recommend" in call("fairhorizon", "--help")
    call("fairhorizon", "demo", MARKET, "--rounds=1", "--k=5", "--out=demo")
    assert (tmp_path / "demo" / "index.html").stat().st_size > 10_000
    call("fairhorizon", "fit", "ease+lists", MARKET, "--limit=popular<=0.4", "--all", "--out=run")
    call("fairhorizon", "recommend", "run", "--k=5", "--out=lists.csv")
    assert len((tmp_path / "lists.csv").read_text().splitlines()) == 1 + 60 * 5
    call("python", "-c", FROM_PYTHON)
    serve(programs / "fairhorizon", tmp_path)


def serve(program: Path, folder: Path) -> None:
    """Serve the run, ask for a list and for the dashboard, and stop."""
    port = free_port()
    process = subprocess.Popen(
        [program, "serve", "--run=run", f"--port={port}", f"--database={folder / 'service.db'}"],
        cwd=folder,
        env=plain(),
    )
    try:
        wait_until_ready(process, port)
        for path in ("api/recommend/1", "", "dashboard/style.css"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
                assert answer.status == 200
    finally:
        process.terminate()
        assert process.wait(60) == 0


def wait_until_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + 300
    while True:
        assert process.poll() is None, "it ended"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health/ready", timeout=60).close()
            return
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < until, "it does not become ready"
            time.sleep(0.2)
