"""The audit of lists that FairHorizon wrote itself, and of lists it never saw."""

import json
from pathlib import Path

import polars as pl
import pytest

from fairhorizon.cli.app import run

MARKET = "synthetic:users=40,items=60,interactions_per_user=15"


def fairhorizon(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    fairhorizon("fit", "popularity+quota@0.4", "--data", MARKET, "--out", out)
    return out


def audited(lists: Path, out: Path, *options: object) -> dict[str, object]:
    fairhorizon("audit", lists, "--data", MARKET, *options, "--json", out)
    (row,) = json.loads(out.read_text())["rows"]
    return row  # type: ignore[no-any-return]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize("protocol", ["standard", "paper"])
def test_lists_of_evaluate_have_exactly_its_metrics(
    fitted: Path, tmp_path: Path, protocol: str, suffix: str
) -> None:
    result, lists = tmp_path / "m.json", tmp_path / "lists.csv"
    how = ("--protocol", protocol, "--k", "3,7,12")
    fairhorizon("evaluate", fitted, *how, "--json", result, "--lists", lists)
    expected = json.loads(result.read_text())
    frame, given = pl.read_csv(lists).sample(fraction=1, shuffle=True, seed=1), lists
    if suffix == "tsv":
        frame.write_csv(given := tmp_path / "lists.tsv", separator="\t")
    elif suffix == "parquet":
        frame.write_parquet(given := tmp_path / "lists.parquet")
    row = audited(given, tmp_path / "a.json", "--k", "12,7,3", "--alpha-prime", 0.4)
    assert row["metrics"] == expected["metrics"]
    for key in ("dataset", "protocol", "mode", "alpha_prime"):
        assert row[key] == expected[key]


def test_lists_of_recommend_have_the_metrics_of_evaluate(fitted: Path, tmp_path: Path) -> None:
    fairhorizon("evaluate", fitted, "--k", "5,10", "--json", tmp_path / "m.json")
    fairhorizon("recommend", fitted, "--k", 10, "--out", tmp_path / "lists.csv")
    options = ("--k", "5,10", "--alpha-prime", 0.4, "--name", "shop")
    row = audited(tmp_path / "lists.csv", tmp_path / "a.json", *options)
    assert row["metrics"] == json.loads((tmp_path / "m.json").read_text())["metrics"]
    assert (row["method"], row["seed"]) == ("shop", None)


def test_the_report_of_lists_made_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists, out = tmp_path / "their lists.csv", tmp_path / "new" / "report"
    lists.write_text("wer,was,wann\n3,7,1\n3,7,2\n3,9,3\n99,1,1\n")
    columns = ("--list-user=wer", "--list-item=1", "--list-time=wann", "--ignore-unknown")
    options = (*columns, "--k", 2, "--name", "<shop>", "--out", out)
    row = audited(lists, tmp_path / "a.json", *options)
    assert json.loads((out / "audit.json").read_text())["rows"] == [row]
    assert sorted(path.name for path in out.iterdir()) == [
        "audit.json",
        *("exposure.pdf", "exposure.png", "exposure.svg"),
        "index.html",
    ]
    said = capsys.readouterr().out
    assert "shown: 3 items to 1 of 40 users\n" in said
    assert "read as: impressions, ordered by time\n" in said
    assert "left out: 1 rows of unknown users or items\n" in said
    assert said.endswith(f"{out / 'index.html'}: the page, open it in a browser\n")
    page = (out / "index.html").read_text(encoding="utf-8")
    for part in (
        "<h1>Audit of &lt;shop&gt; on synthetic:users=40",
        "<h2>Exposure by group</h2>",
        "<h2>Over-exposed and under-exposed items</h2>",
        '<td data-value="7">7</td>',
        f"fairhorizon audit &#39;{lists}&#39; --data {MARKET}",
        "--list-user wer",
        "--ignore-unknown",
    ):
        assert part in page, part
    assert "<shop>" not in page
    assert page.count("66.67%") == 1  # of item 7, two of the three impressions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["bad.csv"], "bad.csv line 3: user 'nobody' is not in synthetic:users=40"),
        (["gone.csv"], "gone.csv: there is no such file (check the path)"),
        (["."], ".: is a folder, not a file"),
        (["good.csv", "--list-user=x"], "there is no column 'x' (the columns are 'user', 'item')"),
        (["good.csv", "--list-rank=5"], "there is no column 5 (the columns are"),
        (["good.csv", "--k=61"], "--k 61: there are only 60 items"),
        (["good.csv", "--json=."], "check the path"),
        (["good.csv", "--out=good.csv"], "good.csv: File exists (check the path"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text("user,item\n1,2\n")
    (tmp_path / "bad.csv").write_text("user,item\n1,2\nnobody,2\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(["audit", "--data", MARKET, "--out=new/report", "--json=m.json", *options]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_wrong_usage_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = tmp_path / "lists.csv"
    lists.write_text("user,item\n0,1\n")
    assert run(["audit", str(lists)]) == 2
    assert "--data" in capsys.readouterr().err
    assert run(["audit", str(lists), "--data", MARKET, "--k=0"]) == 2
    assert "--k: '0' (give whole numbers" in capsys.readouterr().err
    assert run(["audit", str(lists), "--data", MARKET, "--alpha-prime=nan"]) == 2
    assert "--alpha-prime" in capsys.readouterr().err


ITEMS = "item,name,seller\n" + "".join(f"{n},Film {n},s{n % 7}\n" for n in range(59))


def test_verdicts_providers_and_titles(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fairhorizon("recommend", fitted, "--k", 5, "--out", tmp_path / "lists.csv")
    table = tmp_path / "items.csv"
    table.write_text(ITEMS + "59,,s3\n")
    capsys.readouterr()
    out = tmp_path / "page"
    options = ("--item-table", table, "--providers=seller", "--out", out)
    limits = ("--limit=popular<=0.4", "--limit=seller:each>=0.1", "--limit=popular<=0.1;scope=list")
    fairhorizon("audit", tmp_path / "lists.csv", "--data", MARKET, *options, *limits)
    said = capsys.readouterr().out.splitlines()
    words = "popular<=0.4             kept: 40.0 % of at most 40 %, but "
    assert said[0].startswith(words)
    assert said[1].startswith("seller:each>=0.1         not kept by ")
    assert said[2].startswith(
        "popular<=0.1;scope=list  not kept in 40 of 40 lists, the worst has 40"
    )
    assert any(line.startswith("popular") and line.split()[-1] == "40.0" for line in said[3:])
    content = json.loads((out / "audit.json").read_text())
    assert [one["kept"] for one in content["verdicts"]] == [True, False, False]
    shown = pl.read_csv(tmp_path / "lists.csv").with_columns(pl.col("item") % 7)
    for one in content["providers"]:
        own = shown.filter(pl.col("item") == int(one["provider"][1:]))
        assert one["shown"] == len(own)
        assert one["best_rank"] == (own["rank"].min() if len(own) else None)
    ratios = [one["ratio"] for one in content["providers"]]
    assert ratios == sorted(ratios)
    below = [one["limit"] for one in content["rows"][0]["limits"] if not one["kept"]]
    few = [one["provider"] for one in content["providers"] if one["of_exposure"] < 0.1]
    assert set(below[:-1]) == {f"seller={name}>=0.1" for name in few}
    assert sum(content["by_rank"]["showings"]) == 200
    page = (out / "index.html").read_text(encoding="utf-8")
    parts = ("Were the rules kept?", "The lists of user", "Exposure by rank", "Results")
    places = [page.index(f"<h2>{part}") for part in parts]
    assert places == sorted(places)
    assert "<h2>Providers: seller</h2>" in page
    assert "Film " in page


def test_a_title_may_be_named_and_a_column_may_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "items.csv").write_text("item,titel\n7,Sieben\n")
    (tmp_path / "lists.csv").write_text("user,item\n3,7\n")
    words = ["audit", tmp_path / "lists.csv", "--data", MARKET, "--k=1"]
    words += ["--item-table", tmp_path / "items.csv"]
    fairhorizon(*words, "--title=titel", "--out", tmp_path / "page")
    assert "Sieben" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert run([*map(str, words), "--providers=shop"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no column 'shop' (neither the table nor the log has it" in line
