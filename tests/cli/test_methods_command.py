"""fairhorizon methods: on the terminal and as JSON."""

import json
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.report.catalogue import all_methods


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run(["methods", *arguments]) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_the_list_has_a_row_per_method(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    lines = printed(capsys)
    assert lines[0].split() == ["Method", "Kind", "@", "What", "it", "is"]
    name = "mf".ljust(len("fcpo:strong-start"))
    assert f"{name}  ranker        Matrix factorisation of ratings (Koren et al. 2009)." in lines
    assert (
        "fcpo:strong        preset     @  FCPO with gru4rec, a neural network, among its rankers; "
        "serves any limit." in lines
    )
    assert len({line.split()[0] for line in lines[2:-2]}) == len(lines) - 4 == len(all_methods())
    assert lines[-1] == "Settings of one method: fairhorizon methods NAME"


def test_the_settings_of_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert printed(capsys, "ease:recent+quota") == [
        "ease:recent+quota (ranker + re-ranker): EASE with more weight on recent items, for logs "
        "in time order. Quota: at most a share of every list",
        "is sensitive items, the best ones by score.",
        "Setting             Default  Meaning",
        "─" * 139,
        "l2                  300.0    Weight of the L2 penalty on the item-item weights.",
        "                             Allowed: number above 0. tune: 10 to 5000, log scale.",
        "half_life           3.0      Age, in items, at which an item of the history counts half; "
        "None: all items count equally.",
        "                             Allowed: number above 0, or null (None). tune: 1 to 50, log "
        "scale.",
        "training_half_life  10.0     Distance, in items, at which a pair of a user's items counts "
        "half in training; None: all pairs count equally.",
        "                             Allowed: number above 0, or null (None). tune: 3 to 300, log "
        "scale.",
        "popularity          0.0      Scores are divided by the item's count to this power; 0: "
        "left as they are.",
        "                             Allowed: number, at least 0. tune: 0 to 0.6.",
        "quota.share         0.4      Largest share of every list that may be sensitive items (q).",
        "                             Allowed: number from 0 to 1.",
        "Level: ease:recent+quota@0.35 sets quota.share=0.35",
        "Example: fairhorizon fit ease:recent+quota --data ml-100k --set quota.share=0.4 --out "
        "runs/ease-recent+quota",
    ]


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("name", [None, "fcpo", "fcpo:paper", "mf+foe", "lird", "popularity"])
def test_every_word_is_there_at_any_width(
    name: str | None,
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = printed(capsys, *([] if name is None else [name]))
    table = [line for line in lines if not line.startswith(("Example:", "Level:"))]
    assert max(map(len, table)) <= columns
    assert "…" not in "".join(lines)
    if name == "fcpo":
        assert any(line.split()[:2] == ["line_search_attempts", "10"] for line in lines)


def test_the_list_as_json(tmp_path: Path) -> None:
    file = tmp_path / "new" / "methods.json"
    assert run(["methods", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["methods"]
    assert [row["name"] for row in rows] == [entry.name for entry in all_methods()]
    assert next(row for row in rows if row["name"] == "fcpo") == {
        "name": "fcpo",
        "kind": "agent",
        "summary": "Fairness-Constrained Policy Optimization (Ge et al. 2021, Algorithm 1).",
        "takes_level": True,
    }


def test_one_as_json(tmp_path: Path) -> None:
    file = tmp_path / "fcpo.json"
    assert run(["methods", "fcpo:paper", "--json", str(file)]) == 0
    content = json.loads(file.read_text())
    assert (content["name"], content["kind"]) == ("fcpo:paper", "preset")
    (kl_limit,) = [row for row in content["settings"] if row["name"] == "kl_limit"]
    assert kl_limit == {
        "name": "kl_limit",
        "default": "0.05",
        "allowed": "number above 0",
        "meaning": "Largest mean KL divergence between the policies before and after an update "
        "(delta).",
        "searched": "0.005 to 0.5, log scale",
    }


@pytest.mark.parametrize("name", ["bogus", "ease+bogus", "fcpo:bogus", "ease@0.4"])
def test_an_unknown_name_is_wrong_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["methods", name]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: Invalid value for NAME: ")
    assert said.err.count("\n") == 1
