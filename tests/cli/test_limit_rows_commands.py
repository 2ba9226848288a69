"""Two limits in every command that measures: a row for each in its table, JSON file and page."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from fairhorizon.cli.app import run

FLOOR, POPULAR, FIRST = "seller=Corner>=0.4", "popular<=0.3", "popular<=0.3@5"
METHODS = "--methods=ease+control,ease"
SMALL = ("--seeds=1", "--jobs=1", "--out=out", "--json=rows.json")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of sellers, a run on it, and lists of that run."""
    draw, folder = random.Random(5), tmp_path_factory.mktemp("shop")
    with (folder / "log.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "item", "time", "seller"])
        for user in range(30):
            taken = sorted(range(40), key=lambda item: draw.random() * (item + 5))[:10]
            for time, item in enumerate(draw.sample(taken, len(taken))):
                rows.writerow([user, item, time, "Mega" if item % 2 else "Corner"])
    data = f"--data={folder / 'log.csv'}"
    assert run(["fit", "ease+control", data, f"--out={folder / 'run'}"]) == 0
    lists = f"--out={folder / 'lists.csv'}"
    assert run(["recommend", f"{folder / 'run'}", "--k=10", lists]) == 0
    return folder


def rows_of(command: str, content: dict[str, Any]) -> list[dict[str, Any]]:
    if command == "evaluate":
        return list(content["limits"])
    return list(content["rows"][0]["limits"] if command == "audit" else content["limit_rows"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "limits", "options", "methods"),
    [
        ("evaluate", (FLOOR, POPULAR), ("{run}", "--k=10", "--json=rows.json"), 0),
        ("audit", (FLOOR, POPULAR), ("{lists}", "{data}", "--out=out", "--json=rows.json"), 0),
        ("compare", (FLOOR, POPULAR), ("{data}", METHODS, "--k=5,10", *SMALL), 2),
        ("frontier", (FLOOR, POPULAR), ("{data}", METHODS, "--k=10", *SMALL), 2),
        ("levels", (FIRST, POPULAR), ("{data}", METHODS, "--k=10", "--tries=0", *SMALL), 2),
        ("longterm", (FLOOR, POPULAR), ("{data}", METHODS, "--steps=4", "--warm-up=1", *SMALL), 2),
    ],
)
def test_every_command_has_a_row_for_each(
    command: str,
    limits: tuple[str, str],
    options: tuple[str, ...],
    methods: int,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {"run": place / "run", "lists": place / "lists.csv", "data": f"--data={place}/log.csv"}
    given = [option.format(**named) for option in options]
    assert run([command, *given, *(f"--limit={text}" for text in limits)]) == 0
    said = capsys.readouterr().out
    content = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    rows = rows_of(command, content)
    found = {row["limit"].partition(";labels")[0] for row in rows}
    assert found == set(limits)
    for row in rows:
        assert {"asked", "reached", "weighed", "at", "lists_above"} < row.keys()
        assert {"violations", "price", "kept"} < row.keys()
        assert row["kept"] == (row["violations"] == 0 and row["reached"] is not None)
    assert "Violations" in said
    for text in limits:
        own = [row for row in rows if row["limit"].partition(";labels")[0] == text]
        if methods:
            assert f"Limit {text}" in said
            names = [row["method"].partition("@")[0] for row in own]
            assert {"ease+control", "ease"} <= set(names)
        else:
            assert len(own) == 1
            assert text in said
    if command != "evaluate":
        page = Path("out/index.html").read_text(encoding="utf-8")
        assert "<h2>Limits" in page
        for text in limits:
            assert text.replace("<", "&lt;").replace(">", "&gt;") in page
