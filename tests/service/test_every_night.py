"""docs/how-to/every-night.md, command by command, beside a service at work."""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from fairhorizon.cli.app import run
from fairhorizon.service.admin.forget import remove
from fairhorizon.service.store.database import Database

sys.path.insert(0, str(Path(__file__).parent / "api"))
from live_server import LiveServer  # beside the tests of the API

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "every-night.md"


@pytest.fixture
def server(shop_run: Path, tmp_path: Path) -> Iterator[LiveServer]:
    shutil.copytree(shop_run, tmp_path / "runs" / "shop")
    pl.DataFrame({"sku": ["a1", "a61"], "maker": ["one", "two"]}).write_csv(
        tmp_path / "articles.csv"
    )
    (tmp_path / "shop.toml").write_text(
        f'[groups]\nitem_table = "{tmp_path / "articles.csv"}"\n[columns]\nitem = "sku"\n'
    )
    begun = LiveServer.start(
        tmp_path / "log",
        *("--run", str(tmp_path / "runs" / "shop"), "--config", str(tmp_path / "shop.toml")),
        *("--limit", "maker=one<=0.5"),  # about a column that only the item table has
    )
    yield begun
    begun.kill()


def commands(port: int) -> list[list[str]]:
    found = []
    for line in re.findall(r"^    fairhorizon (.*)$", PAGE.read_text(encoding="utf-8"), re.M):
        words = shlex.split(line.replace("8088", str(port)))
        found.append(["ease+lists" if word == "fcpo" else word for word in words])
    return found


def test_the_model_of_tomorrow_knows_what_was_taken_today(
    server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (limit,) = server.call("GET", "/v1/limits").json()
    assert limit["Limit"] == "maker=one<=0.5"
    events = [
        {"FeedbackType": kind, "UserId": user, "ItemId": item}
        for kind, user, item in (
            ("take", "newcomer", "a62"),
            ("take", "c1", "a62"),
            ("read", "c2", "a62"),
            ("dislike", "c3", "a62"),
            ("take", "gone", "a1"),
        )
    ]
    assert server.call("POST", "/api/feedback", json=events).json() == {"RowAffected": 5}
    database = Database("runs/shop/service.db")
    remove(database, "gone")
    remove(database, "c0")  # who is in the log of the model
    database.close()

    export, fit = commands(server.port)
    assert run(export) == 0
    before = pl.read_parquet(tmp_path / "runs" / "shop" / "log.parquet")
    log = pl.read_parquet("nightly/data/log.parquet")
    n_forgotten = len(before.filter(pl.col(before.columns[0]) == "c0"))
    assert n_forgotten > 0
    assert len(log) == len(before) - n_forgotten + 2
    assert log["user"].to_list()[-2:] == ["newcomer", "c1"]
    assert log["timestamp"].is_sorted()
    items = pl.read_parquet("nightly/data/items.parquet")
    assert items.filter(pl.col("item") == "a61").rows(named=True) == [
        {"item": "a61", "kind": "k1", "maker": "two", "seller": "big"}
    ]
    assert run(fit) == 0
    models = server.call("GET", "/v1/models").json()
    assert [(one["Id"], one["Current"]) for one in models] == [(1, False), (2, True)]
    assert "a62" not in server.call("GET", "/api/recommend/newcomer?n=50").json()

    # the next night: what was exported is in the log of the model already
    assert run([*export[:-1], "nightly/again"]) == 0
    assert pl.read_parquet("nightly/again/log.parquet").equals(log)


def test_what_is_wrong_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["fit", "popularity", "--data", "synthetic:users=20,items=30", "--out", "run"]
    assert run([*words, "--promote", "http://127.0.0.1:1"]) == 2
    assert "give --all" in " ".join(capsys.readouterr().err.split())
    assert run([*words, "--all", "--promote", "http://127.0.0.1:1"]) == 1
    assert "the service does not answer" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "run" / "run.json").exists()  # the model is there all the same
