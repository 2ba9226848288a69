"""What the command line shows: help, tables, the live line, the demonstration."""

import io
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console

from fairhorizon.cli.app import app, run
from fairhorizon.cli.longterm import News
from fairhorizon.cli.progress import Progress
from fairhorizon.fcpo.dual import Case
from fairhorizon.parallel.engine import HERE
from fairhorizon.recommenders.progress import RoundReport, StepDetails

REPORT = RoundReport(7, 1.5, 2.25, 2.0, 0.0123, "recover", 0.5, 0.0625, rounds=10)
LINE = " 7/10  reward 1.500  cost 2.250/2.000  KL 0.0123  recover step 0.5  NDCG 0.0625"


def test_a_terminal_sees_a_bar_and_one_line_redrawn() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120, color_system=None)
    with Progress(console=console) as progress:
        for _ in range(3):
            progress.round(REPORT)
        assert "\n" not in shown.getvalue()
        assert progress.bar.tasks[0].percentage == 70  # 7 of 10 rounds
    assert shown.getvalue().count(LINE) >= 3
    assert "\u2501" * 8 in shown.getvalue()  # 70 % of 12 columns
    assert shown.getvalue().endswith("\x1b[2K")  # and wiped in the end


def test_the_bar_of_a_long_run_counts_its_steps() -> None:
    class Study:
        settings = SimpleNamespace(steps=40)

        def steps_done(self, *_: object) -> int:
            return 20

    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Progress(console=console) as progress:
        news = News(progress, Study(), ["a", "b"], [0], HERE)  # type: ignore[arg-type,list-item]
        news.last = 0.0
        news.meanwhile()
        task = progress.bar.tasks[0]
        assert (task.completed, task.total) == (20, 80)
        assert task.description.startswith("20/80 steps")


def test_elsewhere_there_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(label="b  ") as progress:
        progress.epoch(2, 0.5)
        progress.round(REPORT)
    assert capsys.readouterr().err == f"b  epoch 2  validation NDCG 0.5000\nb  {LINE}\n"


def test_verbose_lines_have_the_numbers_behind_the_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    details = StepDetails(4.0, (-1.0,), (2.5,), 20.0, (0.125,), attempts=3)
    with Progress(verbose=True) as progress:
        progress.round(replace(REPORT, details=details))
    line = f"{LINE}  q 4  r -1  s 2.5  lambda 20  nu 0.125  line search 3 tried\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    "command",
    ["", "fit", "evaluate", "recommend", "demo", "methods", "data", "data info", "data split"],
)
def test_help_fits_a_terminal(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Usage: {f'fairhorizon {command}'.strip()} [OPTIONS]" in text
    assert max(map(len, text.splitlines())) <= 80


def commands() -> dict[str, Any]:
    """Every command by its name, those of a group too."""
    top: dict[str, Any] = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    inner = top.pop("data").commands
    return top | {f"data {name}": command for name, command in inner.items()}


@pytest.mark.parametrize("name", commands())
def test_a_help_text_is_a_sentence_and_its_lines_fit_a_terminal(name: str) -> None:
    """Lines of a paragraph are shown as they are: longer ones would be broken in the middle."""
    command = commands()[name]
    first, *others = command.help.splitlines()
    assert max((len(line) for line in others), default=0) <= 78
    assert first.endswith(".")
    for parameter in command.params:
        assert parameter.help, f"{name} {parameter.name} has no help"
        assert parameter.help.endswith((".", "..."))
        assert parameter.help[0].isupper() or parameter.help.split(":")[0].split(",")[0].islower()


def test_the_help_of_fit_explains_the_line_of_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "--help"]) == 0
    text = capsys.readouterr().out
    guide = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    for case in Case:
        assert case.value in text
        assert f"| `{case.value}` |" in guide
    for word in ("reward", "cost", "KL", "step", "NDCG"):
        assert word in text
        assert f"`{word}`" in guide
    assert "docs/training.md" in text


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage: fairhorizon [OPTIONS] COMMAND" in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert re.fullmatch(r"fairhorizon \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_data_info_prints_the_statistics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.tsv"
    log.write_text("wer\twas\twann\nä\tx\t1\nä\ty\t2\nb\tx\t3\n", encoding="utf-8")
    assert run(["data", "info", str(log), "--user=wer", "--item=1", "--timestamp=wann"]) == 0
    cells = capsys.readouterr().out.splitlines()[3].split()
    assert cells == ["log.tsv", "2", "2", "1.50", "1.50", "3", "75.000%"]


@pytest.mark.slow
def test_the_demo_writes_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "demo"
    market = "synthetic:users=40,items=50,interactions_per_user=10"
    assert run(["demo", f"--data={market}", "--rounds=1", "--k=5", f"--out={out}"]) == 0
    made = {path.name for path in out.iterdir()}
    assert made >= {"exposure.png", "index.html", "levels.svg", "long-run.pdf"}
    shown = capsys.readouterr()
    assert shown.out.startswith("Recommendation under an exposure limit: of all showings, at most")
    lines = [line.split() for line in shown.out.splitlines()]
    start = lines.index(["Limit", "Method", "Kept", "Popular", "NDCG@5", "Recall@5", "Gini@5"])
    assert [" ".join(line[:4]) for line in lines[start + 2 : start + 14]] == [
        "none popularity - 96.50",
        *("85 % popularity+quota yes", "85 % ease:recent+quota yes", "85 % fcpo yes"),
        *("65 % popularity+quota yes", "65 % ease:recent+quota yes", "65 % fcpo yes"),
        *("65 % fcpo:paper yes", "65 % fcpo:tuned yes"),
        *("37 % popularity+quota yes", "37 % ease:recent+quota yes", "37 % fcpo yes"),
    ]
    words = " ".join(shown.out.split())
    assert "fcpo:paper, the policy of the paper, and fcpo:tuned had 1 round of training" in words
    assert "The long run: 12 steps of one item for every user, at most 37 % popular" in words
    assert shown.out.endswith(f"{out / 'index.html'}: the page, open it in a browser\n")
    # what the fit found: kind of log, rankers, accuracy
    for words in ("log: short histories (", "rankers, by weight: ", "NDCG@20 of what came later"):
        assert f"\n{words}" in shown.err
