"""A group chosen by an attribute is called by it, wherever a command prints or writes."""

import json
import re
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.report.page import drawing_library

NAME = "seller = MegaMart"
FCPO = [
    f"--set=fcpo.{setting}"
    for setting in ('warm_start=["ease"]', "rounds=1", "horizon=3", "cg_iterations=3")
]
GROUP = ("--group-column=seller", "--sensitive=MegaMart")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """20 users, 10 items, of which 0 to 3 are of MegaMart."""
    monkeypatch.chdir(tmp_path)
    sellers = ["MegaMart" if item < 4 else "Corner|Shop" for item in range(10)]
    shown = [(user, (user + 3 * n) % 10, n) for n in range(6) for user in range(20)]
    rows = [f"{user},{item},{n},{sellers[item]}" for user, item, n in shown]
    Path("shop.csv").write_text("user,item,timestamp,seller\n" + "\n".join(rows) + "\n")
    return "--data=shop.csv"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says; it must not speak of popular items."""
    assert run(list(arguments)) == 0
    said = capsys.readouterr()
    text = said.out + said.err
    assert not re.search("pop", text, re.IGNORECASE), text
    return text


def written(file: str) -> str:
    """A page without the library for its charts; it must not speak of popular items."""
    text = Path(file).read_text(encoding="utf-8").replace(drawing_library(), "")
    assert "popular" not in text.lower()
    return text


def test_evaluate(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "ease+quota@0.4", shop, *GROUP, "--out=run"]) == 0
    capsys.readouterr()
    said = printed(capsys, "evaluate", "run", "--k=2,3", "--json=m.json")
    assert f"The group is {NAME}." in said
    heading, second = said.splitlines()[:2]
    assert heading.split()[-2:] == ["seller", "="]
    assert second.split()[-1] == "MegaMart"
    content = json.loads(Path("m.json").read_text())
    assert content["group"] == NAME
    assert content == json.loads(Path("run/metrics.json").read_text())
    # what was stored before has its name still
    assert 0 <= content["metrics"]["popularity_rate@2"] <= 0.5


def test_audit(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("lists.csv").write_text("user,item\n0,0\n0,9\n1,5\n1,6\n")
    said = printed(capsys, "audit", "lists.csv", shop, *GROUP, "--k=2", "--out=report")
    assert f"The group is {NAME}." in said
    page = written("report/index.html")
    heading = f'<th class="number" aria-sort="none"><button>{NAME}</button></th>'
    assert page.count(heading) == 2  # of the results, and of the metrics of exposure
    assert f'<td>{NAME}</td><td class="number" data-value="4">4</td>' in page  # four of ten items
    assert f"{NAME} is the group whose exposure is to be limited." in page
    assert f"items with {NAME} 25.0%" in page  # one of four showings
    (row,) = json.loads(Path("report/audit.json").read_text())["rows"]
    assert (row["group"], row["metrics"]["popularity_rate@2"]) == (NAME, 0.25)


def test_longterm(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    several = ("--group-column=seller", "--sensitive=MegaMart,Corner")
    command = ("longterm", shop, "--methods=ease", "--steps=4", "--warm-up=1", "--jobs=1")
    said = printed(capsys, *command, *GROUP, "--seeds=2", "--out=long")
    assert re.search(rf"ease seed 1  NDCG \S+  Gini \S+  {NAME} \S+  steps over the limit", said)
    assert re.search(rf"^Method .*{NAME}", said, re.MULTILINE)
    page = written("long/index.html")
    assert f"The limited group is {NAME}, and its items stay the same. 4 steps" in page
    assert f"<button>{NAME}</button>" in page
    assert f"| {NAME} |" in written("long/longterm.md")
    assert json.loads(Path("long/longterm.json").read_text())["settings"]["group"] == NAME
    printed(capsys, *command, *several, "--seeds=1", "--out=both")
    assert "The limited group is seller = MegaMart or Corner, and" in written("both/index.html")


def test_compare(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("compare", shop, *GROUP, "--methods=ease,ease+quota@0.4", "--k=2,3", "--seeds=1")
    said = printed(capsys, *command, "--jobs=1", "--protocol=paper", "--out=compared")
    assert re.search(rf"^Method .*{NAME}", said, re.MULTILINE)
    page = written("compared/index.html")
    assert f"<button>{NAME}</button>" in page
    assert f"share of the shown items with {NAME} (group G0); less is fairer" in page
    assert f"| {NAME} |" in written("compared/table.md")
    assert json.loads(Path("compared/comparison.json").read_text())["group"] == NAME


def test_frontier(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    methods = "--methods=ease,ease+quota@0.4"
    said = printed(capsys, "frontier", shop, *GROUP, methods, "--k=3", "--jobs=1", "--out=frontier")
    assert "NDCG@3 x other items" in said
    assert f"Other items: all but items with {NAME}." in " ".join(said.split())
    page = written("frontier/index.html")
    assert "NDCG@3 against share of other items@3" in page
    assert "long-tail" not in page
    assert f'"title":"{NAME}, %"' in page  # of a point
    assert json.loads(Path("frontier/frontier.json").read_text())["group"] == NAME


def test_levels(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    methods = ("--methods=fcpo:strong,ease+quota", *FCPO, "--levels=0.4", "--tries=1", "--k=3")
    said = printed(capsys, "levels", shop, *GROUP, *methods, "--seeds=1", "--jobs=1", "--out=lv")
    assert re.search(rf"fcpo:strong@0.4 seed 0  {NAME} \d", said)
    assert f"At most 40 % items with {NAME} in lists of 3: " in said
    tables = written("lv/levels.md")
    assert tables.count(f" {NAME} |") == 2  # of the methods, and of the gains
    assert f"Gini and {NAME}: the difference to that rival" in tables
    assert json.loads(Path("lv/levels.json").read_text())["group"] == NAME


def test_popular_items_are_called_so(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["longterm", shop, "--methods=ease", "--steps=4", "--warm-up=1", "--jobs=1"]
    assert run([*command, "--seeds=1"]) == 0
    said = capsys.readouterr()
    assert "  popular " in said.err
    assert " Popular " in said.out
    page = Path("longterm/index.html").read_text(encoding="utf-8")
    assert "exposure decides which items are popular: so the groups change" in page
