"""Every command and example in README and docs runs; those of one document share a folder.

They run in the order of the document: an example may write the file that a command reads.

Data sets become the market and trainings short; options that are given again at the end of a
command replace those in the document.
"""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
import typer

from fairhorizon.allocation import spreading
from fairhorizon.cli.app import app, run
from fairhorizon.rankers import RANKERS
from test_benchmarks import CASES as BENCHMARKS

pytestmark = pytest.mark.slow

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
        "fcpo.looking_ahead.pretraining_runs=1",
    ),
)
WARM_START = (
    'warm_start=["ease:recent","itemknn:recent"]'  # GRU4Rec takes seconds, and is in other commands
)
EXAMPLES = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.py")}
RUN_ELSEWHERE = {  # with shorter trainings, or with more that is checked
    "README.md": "test_docs.py",
    "docs/guarantee.md": "allocation/test_request_guard.py",
    "docs/long-run.md": "test_docs.py",
    "docs/python.md": "test_docs.py",
    "docs/training.md": "test_docs.py",
}
NOT_RUN = {
    "make demo": "installs an environment; tests/cli/test_display.py runs the demo",
    "make test": "runs these tests",
    "make docs": "installs an environment; tests/test_site.py builds the site",
    "make serve-demo": "installs an environment; tests/service/test_serve_demo.py runs the example",
    "make results": "takes an hour; its studies are run here, one by one",
    "make results-full": "takes many hours",
    **dict.fromkeys(
        (
            "fairhorizon serve",
            "fairhorizon serve --run runs/shop",
            "fairhorizon serve --run runs/now",
            "fairhorizon serve --run runs/next --value long",
            "fairhorizon serve --run runs/shop --workers 4 --config fairhorizon.toml",
            "fairhorizon serve --host 0.0.0.0 --tls-certificate shop.pem --tls-key shop.key",
        ),
        "serves until it is stopped; tests/service does",
    ),
    **dict.fromkeys(
        (
            "fairhorizon audit export/lists.parquet --data export/feedback.parquet "
            "--ignore-unknown --limit 'popular<=0.4'",
            "fairhorizon export --database shop.db --type take --out export",
            "fairhorizon fit fcpo --data export/feedback.parquet --answers export/answers.parquet "
            "--away 14 --all --out runs/next",
            "fairhorizon recommend runs/next --value long --k 10 --out tonight.csv",
            "fairhorizon restore shop.zip --database postgresql://shop@db/shop",
            "fairhorizon load items.csv log.csv",
            "fairhorizon keys make --name me --role admin",
            "fairhorizon keys make --name 'web shop' --role feedback",
            "fairhorizon keys make --name prometheus --role read",
            "fairhorizon keys list",
            "fairhorizon keys end 3f1c5a77e0b2",
            "fairhorizon backup --out shop.zip",
            "fairhorizon ledger",
        ),
        "needs what only a service that has served makes; tests/service/moving does",
    ),
    **dict.fromkeys(
        (
            "fairhorizon export --database runs/shop/service.db --with-log --out nightly/data",
            "fairhorizon fit fcpo --data nightly/data/log.parquet --item-table "
            "nightly/data/items.parquet --limit 'seller=small>=0.3' --all --out nightly/model "
            "--promote http://127.0.0.1:8088",
        ),
        "needs a service at work; tests/service/test_every_night.py has one",
    ),
    **dict.fromkeys(
        (
            "fairhorizon load items.csv --database URL",
            "fairhorizon export --database URL --out export",
            "fairhorizon backup --database URL --out shop.zip",
            "fairhorizon restore shop.zip --database URL",
            "fairhorizon forget USER --database URL",
            "fairhorizon keys make --name web --role feedback --database URL",
            "fairhorizon ledger --database URL",
        ),
        "of no database; docs/service-data.md has one of each",
    ),
    **dict.fromkeys(
        (
            "fairhorizon compare --data ml-100k --seeds 5 --engine ray",
            "fairhorizon levels --data ml-100k --engine ray --address auto --out /shared/levels",
        ),
        "starts Ray, or needs a cluster; tests/parallel has one",
    ),
    "fairhorizon compare --data parts --split given --scores als=als.parquet --against scores:als "
    "--methods scores:als,scores:als+lists@0.4,als,als+lists@0.4 --seeds 1": "needs what the "
    "example before it has made; tests/examples/test_scores_from_implicit.py reads such a file",
    "fairhorizon --install-completion": "changes the start-up files of the shell",
}


START = r"(?:fairhorizon|python|make) "
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(rf"^ {{4,}}({START}.+)$", re.MULTILINE)


def snippets_of(document: Path) -> list[str]:
    """Examples in Python, which end in a line break, and commands, in the order of the document.

    Commands of blocks come line by line without comments, those within sentences at the end.
    """
    text = document.read_text(encoding="utf-8")
    joined = re.sub(r"\\\n +", "", text)
    without = PYTHON.sub(lambda found: " " * len(found.group()), joined)  # keeps the positions
    found = [(match.start(), match[1]) for match in PYTHON.finditer(joined)]
    found += [(match.start(), words_of(match[1])) for match in BLOCK.finditer(without)]
    inline = [words_of(command) for command in re.findall(rf"`({START}[^`]+)`", text)]
    return list(dict.fromkeys([*(snippet for _, snippet in sorted(found)), *inline]))


def words_of(command: str) -> str:
    return shlex.join(shlex.split(command, comments=True))


def commands_in(snippets: list[str]) -> list[str]:
    return [snippet for snippet in snippets if not snippet.endswith("\n")]


CASES = {
    document.relative_to(ROOT).as_posix(): snippets
    for document in DOCUMENTS
    if (snippets := snippets_of(document))
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
    if command == "reproduce":
        words.append("--quick")
    if command == "fit" and "--data" not in words:  # only named in a sentence
        words += ["--data", MARKET]
    if command == "fit" and "--out" not in words:
        words += ["--out", f"runs/{len(list(Path('runs').glob('*')))}"]
    if "--jobs" in known and command not in ("tune", "recommend", "evaluate"):
        words += ["--out", str(studies)]  # models are trained once for all documents
        words += [word for setting in SHORT for word in ("--set", setting)]
        if "fcpo:strong" in words or command == "levels":  # not also of preset paper
            words += ["--set", f"fcpo.{WARM_START}"]
    elif command == "fit" and words[1] == "fcpo":
        words += ["--set", "rounds=1", "--set", "adapt=false", "--set", WARM_START]
    return words


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studies")


def check_program(words: list[str]) -> None:
    """A Python program: a benchmark or an example, which other tests run."""
    if words[0].startswith("benchmarks/"):
        what = takewhile(lambda word: not word.startswith("-"), words[1:])
        assert " ".join([Path(words[0]).stem, *what]) in BENCHMARKS
        source = (ROOT / words[0]).read_text(encoding="utf-8")
        for option in (word for word in words if word.startswith("--")):
            assert f'"{option}"' in source
        return
    if words[0].startswith("examples/"):
        assert words[0] in EXAMPLES  # tests/examples has a test of each
        return
    pytest.fail(f"{' '.join(words)}: no benchmark and no example")


@pytest.fixture(autouse=True)
def same_rankers() -> Iterator[None]:
    """A page adds a ranker of its own, which is known while its commands run."""
    known = dict(RANKERS)
    yield
    RANKERS.clear()
    RANKERS.update(known)


@pytest.mark.parametrize("document", CASES)
def test_the_snippets_of_a_document_run(
    document: str, studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spreading, "TRIALS", 2)  # of prices for lists that are spread
    commands = commands_in(CASES[document])
    named = {word for command in commands for word in shlex.split(command)}
    if "RUN" in named and "runs/a" not in named:
        fit = quick(["fit", "fcpo", "--out", "runs/a"], studies)
        assert run(fit) == 0
    names: dict[str, object] = {}
    for snippet in CASES[document]:
        if snippet in NOT_RUN:
            continue
        if snippet.endswith("\n"):
            if document not in RUN_ELSEWHERE:
                exec(compile(snippet, document, "exec"), names)
            continue
        program, *words = shlex.split(snippet)
        if program == "python":
            check_program(words)
        else:
            assert program == "fairhorizon", snippet
            assert run(quick(words, studies)) == 0, snippet


def test_what_is_not_run_is_in_the_documents() -> None:
    found = {command for snippets in CASES.values() for command in commands_in(snippets)}
    assert found >= NOT_RUN.keys()


def test_what_is_run_elsewhere_has_examples_and_a_test() -> None:
    for document, test in RUN_ELSEWHERE.items():
        assert len(commands_in(CASES[document])) < len(CASES[document])
        assert (ROOT / "tests" / test).exists()


def test_the_commands_are_found() -> None:
    """In blocks and sentences, over several lines, without their comments."""
    found = CASES["docs/commands.md"]
    assert "fairhorizon recommend runs/a --k 20 --alpha-prime 0.25 --out fairer.csv" in found
    assert (
        "fairhorizon efficiency --data ml-100k --ranker ease:recent"
        in CASES["docs/results/speed.md"]
    )
    longterm = CASES["docs/long-run.md"]
    assert any(command.endswith("ease:recent+quota --out longterm") for command in longterm)


def test_examples_and_commands_keep_their_order() -> None:
    written, *rest = CASES["docs/start.md"]
    assert written.endswith("\n")
    assert rest[0].startswith("fairhorizon data info sales.csv")
