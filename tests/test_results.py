"""Generated tables of README and docs are what the files in docs/results/data say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from result_tables import LEVEL_TABLES, LONG_TABLES, MARKER, filled, tables_of
from results import DATA, DOCUMENTS, PLANS, Plan, store, stored, trimmed

FOUND = stored(DATA)
TEXTS = {document: document.read_text(encoding="utf-8") for document in DOCUMENTS}


def markers(text: str) -> list[tuple[str, str, str]]:
    """Name, table and what is between, of each marker."""
    return [(name, table, between) for _, name, table, between, _ in MARKER.findall(text)]


# the documents


def test_tables_in_documents_are_those_of_the_files() -> None:
    for document, text in TEXTS.items():
        assert text.count("<!-- results:") == len(markers(text)) == text.count("<!-- end -->")
        if FOUND:
            remedy = f"{document}: run python benchmarks/results.py --tables"
            assert filled(text, FOUND) == (text, []), remedy
        else:
            assert [between for _, _, between in markers(text)] == [""] * len(markers(text))


def test_every_file_is_used_and_every_study_has_a_place() -> None:
    named = {(name, table) for text in TEXTS.values() for name, table, _ in markers(text)}
    names = {plan.name for plan in PLANS}
    assert {name for name, _ in named} == names
    assert FOUND.keys() <= names
    for plan in PLANS:
        tables = LEVEL_TABLES if plan.command == "levels" else LONG_TABLES
        own = {table for name, table in named if name == plan.name}
        assert {"command", "claims"} <= own <= tables.keys()


def test_the_files_are_of_the_commands_of_the_script() -> None:
    for plan in PLANS:
        if plan.name in FOUND:
            commands = [one.words() for one in (plan, plan.of_full_set())]
            typed = FOUND[plan.name]["command"].replace("'", "").split()[1:]
            assert typed in [[word.replace("'", "") for word in words] for words in commands]


# tables, by hand


def spread(mean: float | None, std: float = 0.0) -> dict[str, float | None]:
    return {"mean": mean, "std": None if mean is None else std}


def level_row(method: str, limit: str, ndcg: float, **other: Any) -> dict[str, Any]:
    names = ("gini@20", "popularity_rate@5", "popularity_rate@10", "popularity_rate@20")
    metrics = {name: spread(0.7) for name in (*names, "weighed_rate@20", "lists_above@20")}
    row = {"method": method, "limit": limit, "seeds": [0], "best_rival": False, "above": 0}
    return row | {"metrics": {"ndcg@20": spread(ndcg), **metrics}} | other


def gain(rival: str, limit: str, **other: Any) -> dict[str, Any]:
    row = {"method": "fcpo", "rival": rival, "limit": limit, "best_rival": True}
    return row | {"without_cpo": False, "gini_difference": -0.02} | other


WEIGHED = "popular<=0.37;weights=log"
LEVELS: dict[str, Any] = {
    **{"kind": "levels", "command": "fairhorizon levels --limit 'popular<=0.37;weights=log'"},
    **{"version": "1.2", "seconds": 150, "k": 20},
    "rows": [
        level_row("fcpo", "popular<=0.65", 0.25),
        level_row("ease+quota", "popular<=0.65", 0.24, best_rival=True, above=1),
        level_row("fcpo", WEIGHED, 0.21),
        level_row("ease+quota", WEIGHED, 0.22),
    ],
    "gains": [
        gain(
            *("ease+quota", "popular<=0.65"),
            **{"ndcg": 0.25, "rival_ndcg": 0.24, "difference": 0.01, "low": 0.004, "high": 0.016},
        ),
        gain(
            *("fcpo:start", WEIGHED),
            **{"best_rival": False, "without_cpo": True, "ndcg": 0.21, "rival_ndcg": 0.21},
            **{"difference": 0.0, "low": -0.001, "high": 0.001},
        ),
    ],
    "who_pays": [
        {
            **{"method": "fcpo", "limit": "popular<=0.65", "trait": "activity", "third": "most"},
            **{"users": 1200, "without": 0.3, "limited": 0.29, "difference": -0.01},
            **{"low": -0.02, "high": -0.001},
        }
    ],
}


def run_row(method: str, ndcg: float, over: float) -> dict[str, Any]:
    rates = ("popularity_rate_retrospective", "popularity_rate_lagged", "popularity_rate_initial")
    metrics = {name: spread(0.4) for name in (*rates, "popularity_rate", "gini", "lorenz_share")}
    metrics |= {"violation_share": spread(over), "largest_overshoot": spread(0.004)}
    return {
        "method": method,
        "seeds": [0, 1],
        "metrics": {"ndcg": spread(ndcg, 0.002), **metrics},
    }


def difference(rival: str, mean: float, low: float | None, high: float | None) -> dict[str, Any]:
    row = {"method": "fcpo", "rival": rival, "users": 943}
    return row | {"difference": mean, "low": low, "high": high}


LONG: dict[str, Any] = {
    **{"kind": "longterm", "command": "fairhorizon longterm", "version": "1.2", "seconds": 59},
    "rows": [run_row("fcpo", 0.46, 0.01), run_row("stack+control", 0.45, 0.0)],
    "differences": [
        difference("stack+control", 0.01, 0.002, 0.018),
        difference("ease", -0.03, -0.04, -0.02),
        difference("mf", 0.03, -0.04, 0.1),
        difference("bpr", 0.03, None, None),
    ],
}


def test_levels_by_hand() -> None:
    tables = tables_of(LEVELS)
    assert tables["command"] == (
        "\n    fairhorizon levels --limit 'popular<=0.37;weights=log'\n\n"
        "1 seed; 2 minutes on a busy machine of 2 cores, version 1.2.\n"
    )
    assert tables["summary"].splitlines()[1:] == [
        "| NDCG@20 (Gini) | at most 65 % popular | at most 37 % popular weighed by 1/log2(1 + "
        "place) |",
        "| --- | ---: | ---: |",
        "| fcpo | **25.00** (70.00) | _21.00_ (70.00) |",
        "| ease+quota | _24.00_ (70.00) | **22.00** (70.00) |",
    ]
    lines = tables["levels"].splitlines()
    assert lines[1] == "At most 65 % popular"
    shares = "**70.00** | 70.00 | 70.00 | 70.00 | 70.00 | 70.00 | - |"
    assert lines[5:7] == [
        f"| fcpo | **25.00** | {shares}",
        f"| ease+quota ^ ! | _24.00_ | {shares}",
    ]
    assert "At most 37 % popular weighed by 1/log2(1 + place)" in lines
    assert tables["who-pays"].splitlines()[-1] == (
        "| at most 65 % popular | fcpo | activity, most | 1,200 | 30.00 | 29.00 | -1.00 | "
        "-2.00 to -0.10 |"
    )


def test_a_gain_is_worded_only_where_it_is_shown() -> None:
    tables = tables_of(LEVELS)
    assert tables["claims"].splitlines()[1:] == [
        "- `fcpo` against `ease+quota`, best rival: more NDCG with at most 65 % popular, +1.00 "
        "(+0.40 to +1.60).",
        "- `fcpo` against `fcpo:start`, without CPO rounds: no difference is shown with at most "
        "37 % popular weighed by 1/log2(1 + place), +0.00 (-0.10 to +0.10).",
    ]
    assert [line.split(" | ")[3] for line in tables["gains"].splitlines()[3:]] == [
        "more",
        "not shown",
    ]
    assert tables_of(LONG)["claims"].splitlines()[1:] == [
        "- More NDCG of `fcpo` against `stack+control` +1.00 (+0.20 to +1.80).",
        "- Less NDCG of `fcpo` against `ease` -3.00 (-4.00 to -2.00).",
        "- No difference of NDCG is shown of `fcpo` against `mf` +3.00 (-4.00 to +10.00) and "
        "`bpr`.",
        "- Later steps over the limit: `fcpo` 1.00 % (largest overshoot 0.40 points) and "
        "`stack+control` 0.00 % (largest overshoot 0.40 points).",
    ]


def test_the_long_run_by_hand() -> None:
    tables = tables_of(LONG)
    assert tables["runs"].splitlines()[3:] == [
        "| fcpo | **46.00** ±0.20 | **40.00** ±0.00 | 40.00 ±0.00 | 40.00 ±0.00 | 40.00 ±0.00 | "
        "40.00 ±0.00 | **40.00** ±0.00 | _1.00_ ±0.00 | **0.40** ±0.00 |",
        "| stack+control | _45.00_ ±0.20 | **40.00** ±0.00 | 40.00 ±0.00 | 40.00 ±0.00 | "
        "40.00 ±0.00 | 40.00 ±0.00 | **40.00** ±0.00 | **0.00** ±0.00 | **0.40** ±0.00 |",
    ]
    assert tables["differences"].splitlines()[-1] == "| fcpo | bpr | not shown | 3.00 | - | 943 |"
    assert tables["summary"].splitlines()[1] == (
        "| Method | NDCG | Gini | Retrospective | Lorenz | Steps over | Overshoot |"
    )


def test_a_long_command_is_folded_as_a_shell_reads_it() -> None:
    words = [f"--option{n} value" for n in range(20)]
    command = " ".join(["fairhorizon levels", *words])
    block = tables_of(LEVELS | {"command": command})["command"].split("\n\n")[0]
    assert max(map(len, block.splitlines())) <= 120
    assert re.sub(r" \\\n +", " ", block).strip() == command


# markers


DOCUMENT = (
    "# Title\n\n<!-- results: a summary -->\n<!-- end -->\n\ntext 12\n"
    "<!-- results: b runs -->\n<!-- end -->\n"
)


def test_tables_are_put_between_their_markers_and_changes_are_seen() -> None:
    data = {"a": LEVELS, "b": LONG}
    once, missing = filled(DOCUMENT, data)
    assert missing == []
    assert filled(once, data) == (once, [])
    assert f"<!-- results: a summary -->\n{tables_of(LEVELS)['summary']}\n<!-- end -->" in once
    for _, _, between in markers(once):
        start = once.index(between)
        digits = [start + n for n, character in enumerate(between) if character.isdigit()]
        assert len(digits) > 10
        for position in digits:
            damaged = once[:position] + once[position + 1 :]
            assert filled(damaged, data) == (once, [])


def test_a_missing_file_is_named_and_a_missing_table_refused() -> None:
    after, missing = filled(DOCUMENT, {"a": LEVELS})
    assert missing == ["b"]
    assert after.endswith("<!-- results: b runs -->\n<!-- end -->\n")
    with pytest.raises(ValueError, match="b has no table 'runs'; there are command, summary"):
        filled(DOCUMENT, {"a": LEVELS, "b": LEVELS})


# what is stored


def test_findings_are_trimmed_and_stored_once(tmp_path: Path) -> None:
    found = {"rows": [{"seconds": 3.0, "metrics": {"f1@20": 1, "ndcg@20": 0.12345678}}], "k": 20}
    assert trimmed(found) == {"rows": [{"metrics": {"ndcg@20": 0.123457}}], "k": 20}
    out = tmp_path / "work"
    out.mkdir()
    (out / "levels.json").write_text(json.dumps(found), encoding="utf-8")
    file, plan = tmp_path / "x.json", Plan("x", "levels", "ml-100k", "--levels 0.4", "fcpo")
    for seconds in (100.4, 120.0):  # the second run found everything on disk
        (out / "seconds.json").write_text(str(seconds), encoding="utf-8")
        store(plan, out / "levels.json", file)
        content = json.loads(file.read_text(encoding="utf-8"))
        assert content["seconds"] == 100
    assert content["command"] == (
        "fairhorizon levels --data ml-100k --levels 0.4 --methods fcpo --seeds 1"
    )
    store(plan.of_full_set(), out / "levels.json", file)
    content = json.loads(file.read_text(encoding="utf-8"))
    assert (content["seconds"], content["command"][-9:]) == (120, "--seeds 5")
