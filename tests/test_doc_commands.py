"""Every command in README and docs runs, on a small market; those of one document share a folder.

Data sets become the market and trainings short; options that are given again at the end of a
command replace those in the document.
"""

import re
import shlex
from functools import cache, partial
from pathlib import Path

import pytest
import typer

from fairhorizon.allocation import gini_price
from fairhorizon.cli.app import app, run
from fairhorizon.experiments import four_items
from test_benchmarks import CASES as BENCHMARKS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
MARKET = "synthetic:users=25,items=30,interactions_per_user=8"
WORDS = {"ml-100k": MARKET, "ml-1m": MARKET, "RUN": "runs/a", "NAME": "ease"}
QUICK = {"--seeds": "1", "--jobs": "1", "--steps": "3", "--tries": "1", "--trials": "1"}
SHORT = (
    *(f"{ranker}.max_epochs=1" for ranker in ("mf", "bpr", "ncf", "gru4rec", "sasrec")),
    *("stack.adapt=false", "lird.rounds=1", "lird.updates=1", "lird.pmf.max_epochs=1"),
    *(
        "fcpo.horizon=5",
        "fcpo.rounds=1",
        "fcpo.adapt=false",
        "fcpo.pmf.max_epochs=1",
        "fcpo.users_per_round=10",
    ),
)
WARM_START = 'warm_start=["ease","itemknn"]'  # GRU4Rec takes seconds, and is in other commands
EXAMPLES = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.py")}
NOT_RUN = {
    "make demo": "installs an environment; tests/cli/test_display.py runs the demo",
    "make test": "runs these tests",
    "make results": "takes an hour; its studies are run here, one by one",
    "make results-full": "takes many hours",
    "fairhorizon --install-completion": "changes the start-up files of the shell",
}


def commands_of(document: Path) -> list[str]:
    """Those in blocks, line by line without comments, then those within sentences."""
    text = document.read_text(encoding="utf-8")
    joined = re.sub(r"\\\n +", "", text)
    start = r"(?:fairhorizon|python|make) "
    blocks = re.findall(rf"^ {{4}}({start}.+)$", joined, re.MULTILINE)
    inline = re.findall(rf"`({start}[^`]+)`", text)
    found = [shlex.join(shlex.split(command, comments=True)) for command in (*blocks, *inline)]
    return list(dict.fromkeys(found))


CASES = {
    document.relative_to(ROOT).as_posix(): commands
    for document in DOCUMENTS
    if (commands := commands_of(document))
}


@cache
def options_of(command: str) -> set[str]:
    found = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    return {name for parameter in getattr(found, "params", []) for name in parameter.opts}


def quick(words: list[str], studies: Path) -> list[str]:
    """The words of a command of the command line, made short."""
    command, known = words[0], options_of(words[0])
    words = [WORDS.get(word, word) for word in words]
    words = [str(ROOT / word) if word.startswith("docs/") else word for word in words]
    for option, value in QUICK.items():
        if option in known:
            words += [option, value]
    if command == "fit" and "--data" not in words:  # only named in a sentence
        words += ["--data", MARKET]
    if command == "fit" and "--out" not in words:
        words += ["--out", f"runs/{len(list(Path('runs').glob('*')))}"]
    if "--jobs" in known and command != "tune":
        words += ["--out", str(studies)]  # models are trained once for all documents
        parts = [s for s in SHORT if command != "ablation" or s.startswith("fcpo.")]
        words += [word for setting in parts for word in ("--set", setting)]
        if "fcpo:strong" in words or command == "levels":  # not also of preset paper
            words += ["--set", f"fcpo.{WARM_START}"]
    elif command == "fit" and words[1] == "fcpo":
        words += ["--set", "rounds=1", "--set", "adapt=false", "--set", WARM_START]
    return words


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studies")


def run_program(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python program: a benchmark, which other tests run, or the example of four items."""
    if words[0].startswith("benchmarks/"):
        name = Path(words[0]).stem
        assert " ".join([name, *words[1:]]) in BENCHMARKS
        return
    if words[0].startswith("examples/"):
        assert words[0] in EXAMPLES  # tests/examples has a test of each
        return
    assert words == ["-m", "fairhorizon.experiments.four_items"]
    monkeypatch.setattr(four_items, "moving_groups", partial(four_items.moving_groups, steps=5))
    four_items.main()


@pytest.mark.parametrize("document", CASES)
def test_the_commands_of_a_document_run(
    document: str, studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gini_price, "TRIALS", 2)  # of prices for lists that are spread
    named = {word for command in CASES[document] for word in shlex.split(command)}
    if "RUN" in named and "runs/a" not in named:
        fit = quick(["fit", "fcpo", "--out", "runs/a"], studies)
        assert run(fit) == 0
    for command in CASES[document]:
        if command in NOT_RUN:
            continue
        program, *words = shlex.split(command)
        if program == "python":
            run_program(words, monkeypatch)
        else:
            assert program == "fairhorizon", command
            assert run(quick(words, studies)) == 0, command


def test_what_is_not_run_is_in_the_documents() -> None:
    assert NOT_RUN.keys() <= {command for commands in CASES.values() for command in commands}


def test_the_commands_are_found() -> None:
    """In blocks and sentences, over several lines, without their comments."""
    readme = CASES["README.md"]
    assert "fairhorizon recommend runs/a --k 20 --alpha-prime 0.25 --out fairer.csv" in readme
    assert "fairhorizon efficiency --data ml-100k --ranker ease" in readme
    assert any(command.endswith("ease+quota --out longterm") for command in readme)
    assert len(readme) > 20
    assert len(CASES) > 10
